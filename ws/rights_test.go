package ws

import (
	"fmt"
	"testing"

	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
)

// calls are one call of each kind that touches a signer, with what may do it.
var calls = []struct {
	method, params string
	needs          []access.Right // one of these
	missing        string         // what the refusal names
}{
	{"nonce_allocate", `["s"]`, []access.Right{access.RightAllocate}, "allocate"},
	{"nonce_markUsed", `["s",0,"0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"]`, []access.Right{access.RightMark, access.RightMarkAny}, "mark"},
	{"nonce_markRecyclable", `["s",0]`, []access.Right{access.RightMark, access.RightMarkAny}, "mark"},
	{"nonce_markSigned", `["s",0,"0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"]`, []access.Right{access.RightMark, access.RightMarkAny}, "mark"},
	{"nonce_extend", `["s",0,60000]`, []access.Right{access.RightMark, access.RightMarkAny}, "mark"},
	{"nonce_repair", `["s",0]`, []access.Right{access.RightRepair}, "repair"},
	{"nonce_status", `["s"]`, []access.Right{access.RightRead}, "read"},
	{"nonce_list", `["s"]`, []access.Right{access.RightRead}, "read"},
	{"nonce_setFloor", `["s",1]`, []access.Right{access.RightAdmin}, "admin"},
	{"nonce_subscribe", `["events",{"signers":["s"]}]`, []access.Right{access.RightSubscribe}, "subscribe"},
	{"eth_subscribe", `["events",{"signers":["s"]}]`, []access.Right{access.RightSubscribe}, "subscribe"},
}

func TestEachCallNeedsItsRightAndNoOther(t *testing.T) {
	p := new(inprocess.People)
	p.Grant("ada", "other", inprocess.EveryRight)
	g := guardedGateway(t, p, func(s *setup) { s.ws.MaxSubscriptions = 100 })
	ada := g.as("ada")
	for _, call := range calls {
		for right := access.RightAllocate; right <= access.RightRepair; right <<= 1 {
			p.Grant("ada", "s", right)
			id := call.method + " with " + right.String()
			ada.Request(id, call.method, call.params)
			r := ada.Reply()
			allowed := false
			for _, need := range call.needs {
				allowed = allowed || need == right
			}
			e, _ := r["error"].(map[string]any)
			data, _ := e["data"].(map[string]any)
			switch {
			case allowed && data["reason"] == "forbidden":
				t.Errorf("%s is refused: %v", id, r)
			case !allowed && (data["reason"] != "forbidden" || data["right"] != call.missing || fmt.Sprint(e["code"]) != "-32018"):
				t.Errorf("%s: got %v, want forbidden for want of %s", id, r, call.missing)
			}
		}
	}
	for _, free := range []string{"gateway_info", "gateway_stats"} {
		p.Grant("ada", "other", 0)
		ada.Request(free, free, `[]`)
		ada.WantResult(free)
	}
}

func TestForbiddenRequestsAreRequests(t *testing.T) {
	p := new(inprocess.People)
	p.Grant("ada", "mine", inprocess.EveryRight)
	g := guardedGateway(t, p)
	ada := g.as("ada")
	for range maxBadFrames + 1 {
		ada.AskRefused("1", "nonce_allocate", `["yours"]`, "forbidden")
	}
	ada.Ask("2", "nonce_allocate", `["mine"]`)
}

// A refusal of rights is decided before anything is taken: with every slot full it
// is still the answer.
func TestARightIsAskedForBeforeAdmission(t *testing.T) {
	p := new(inprocess.People)
	p.Grant("ada", "mine", inprocess.EveryRight)
	g := guardedGateway(t, p)
	g.srv.service = panicking{g.Service} // whoever reserves a slot fails the test
	ada := g.as("ada")
	ada.AskRefused("1", "nonce_allocate", `["yours"]`, "forbidden")
	ada.Send(`[{"jsonrpc":"2.0","id":"2","method":"nonce_status","params":["yours"]}]`)
	inprocess.WantError(t, ada.Batch()[0].(map[string]any), "2", "forbidden")
	if g.srv.Panics() != 0 {
		t.Error("the service was asked for a slot")
	}
}

func TestOpsAreSignedWithWhoAsks(t *testing.T) {
	p := new(inprocess.People)
	p.Grant("ada", "*", inprocess.EveryRight&^access.RightMarkAny)
	p.Grant("bob", "*", inprocess.EveryRight)
	g := guardedGateway(t, p)
	ops := g.ops()
	for name, any := range map[string]bool{"ada": false, "bob": true} {
		c := g.as(name)
		for _, call := range calls[:9] {
			c.Request("1", call.method, call.params)
			op := wait.For(t, ops, "the op")
			c.Reply()
			if want := nonce.PrincipalOf(name); op.Principal != want || want == 0 {
				t.Errorf("%s of %s is signed %x, want %x", call.method, name, op.Principal, want)
			}
			if mark := len(call.needs) == 2; op.MarkAny != (mark && any) {
				t.Errorf("%s of %s: mark any %v", call.method, name, op.MarkAny)
			}
		}
	}
}
