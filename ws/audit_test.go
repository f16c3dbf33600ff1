package ws

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/testenv/inprocess"
	"noncegate/internal/testenv/wait"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

func auditedGateway(t *testing.T, level audit.Level, p *inprocess.People) (*gateway, func() []map[string]any) {
	t.Helper()
	out := new(inprocess.Buffer)
	log, err := audit.New(slog.NewJSONHandler(out, nil), audit.Config{Level: level, Queue: 100, LoginsRefused: 100, CallsRefused: 100})
	must(t, err)
	g := guardedGateway(t, p, func(s *setup) { s.ws.Audit = log })
	read := sync.OnceValue(func() []map[string]any {
		must(t, log.Stop(t.Context()))
		var all []map[string]any
		for line := range strings.Lines(out.String()) {
			var one map[string]any
			must(t, json.Unmarshal([]byte(line), &one))
			all = append(all, one)
		}
		return all
	})
	return g, read
}

func TestTheAuditSaysWhoDidWhatToWhichSigner(t *testing.T) {
	for level, want := range map[audit.Level][]string{
		audit.Refusals: {
			"login_refused why=" + access.ErrInvalid.Error(), "login principal=ada credential=key-of-ada",
			"call principal=ada credential=key-of-ada method=nonce_allocate signer=s outcome=forbidden right=allocate",
			"call principal=ada credential=key-of-ada method=nonce_repair signer=mine nonce=2 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_repair signer=mine outcome=invalid_params",
			"call principal=ada credential=key-of-ada method=nonce_setFloor signer=mine nonce=5 outcome=ok",
			"logout principal=ada credential=key-of-ada outcome=client",
		},
		audit.Changes: {
			"login_refused why=" + access.ErrInvalid.Error(), "login principal=ada credential=key-of-ada",
			"call principal=ada credential=key-of-ada method=nonce_allocate signer=s outcome=forbidden right=allocate",
			"call principal=ada credential=key-of-ada method=nonce_allocate signer=mine nonce=0 count=3 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_markRecyclable signer=mine nonce=1 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_markRecyclable signer=mine nonce=77 outcome=not_found",
			"call principal=ada credential=key-of-ada method=nonce_extend signer=mine nonce=0 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_markSigned signer=mine nonce=0 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_repair signer=mine nonce=2 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_repair signer=mine outcome=invalid_params",
			"call principal=ada credential=key-of-ada method=nonce_setFloor signer=mine nonce=5 outcome=ok",
			"logout principal=ada credential=key-of-ada outcome=client",
		},
		audit.All: {
			"login_refused why=" + access.ErrInvalid.Error(), "login principal=ada credential=key-of-ada",
			"call principal=ada credential=key-of-ada method=nonce_allocate signer=s outcome=forbidden right=allocate",
			"call principal=ada credential=key-of-ada method=nonce_allocate signer=mine nonce=0 count=3 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_markRecyclable signer=mine nonce=1 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_markRecyclable signer=mine nonce=77 outcome=not_found",
			"call principal=ada credential=key-of-ada method=nonce_extend signer=mine nonce=0 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_markSigned signer=mine nonce=0 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_repair signer=mine nonce=2 outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_repair signer=mine outcome=invalid_params",
			"call principal=ada credential=key-of-ada method=nonce_status signer=mine outcome=ok",
			"call principal=ada credential=key-of-ada method=nonce_setFloor signer=mine nonce=5 outcome=ok",
			"call principal=ada credential=key-of-ada method=gateway_info outcome=ok",
			"logout principal=ada credential=key-of-ada outcome=client",
		},
		audit.Off: nil,
	} {
		t.Run(level.String(), func(t *testing.T) {
			p := new(inprocess.People)
			p.Grant("ada", "mine", inprocess.EveryRight)
			g, read := auditedGateway(t, level, p)
			g.wantRefused(http.Header{"Authorization": {"Bearer sesame"}}, http.StatusUnauthorized)
			ada := g.as("ada")
			for _, call := range [][2]string{
				{"nonce_allocate", `["s"]`}, {"nonce_allocate", `["mine",3]`}, {"nonce_markRecyclable", `["mine",1]`},
				{"nonce_markRecyclable", `["mine",77]`}, {"nonce_extend", `["mine",0,60000]`},
				{"nonce_markSigned", `["mine",0,"0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"]`},
				{"nonce_repair", `["mine",2]`}, {"nonce_repair", `["mine"]`}, {"nonce_status", `["mine"]`}, {"nonce_setFloor", `["mine",5]`}, {"gateway_info", `[]`},
			} {
				ada.request("x", call[0], call[1])
				ada.reply()
			}
			must(t, ada.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(patience)))
			ada.closed()
			wait.For(t, g.srv.conns.whenEmpty(), "the end of the connection")
			var got []string
			for _, line := range read() {
				if host, _, err := net.SplitHostPort(fmt.Sprint(line["remote"])); err != nil || host != "127.0.0.1" {
					t.Errorf("no address in %v", line)
				}
				said := fmt.Sprint(line["msg"])
				for _, key := range []string{"principal", "credential", "method", "signer", "nonce", "count", "outcome", "right", "why"} {
					if line[key] != nil {
						said += fmt.Sprintf(" %s=%v", key, line[key])
					}
				}
				got = append(got, said)
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestAnUnknownOutcomeIsAuditedAsSuch(t *testing.T) {
	p := new(inprocess.People)
	p.Grant("ada", "*", inprocess.EveryRight)
	g, read := auditedGateway(t, audit.Changes, p)
	ada := g.as("ada")
	ada.request("1", "nonce_allocate", `["a"]`)
	ada.wantResult("1")
	g.Store.SetHooks(memstore.Hooks{Before: func(memstore.Call) error { return errors.New("the connection broke") }})
	ada.request("2", "nonce_allocate", `["a"]`)
	ada.wantError("2", "unavailable")
	g.Store.SetHooks(memstore.Hooks{})
	got := read()
	if last := got[len(got)-1]; last["outcome"] != "unknown" {
		t.Errorf("got %v", last)
	}
}

// Only who holds a nonce, or who may mark any, ends its hold.
func TestAHoldIsItsPrincipals(t *testing.T) {
	for _, mode := range []nonce.Mode{nonce.WorkerQueue, nonce.Basic} {
		p := new(inprocess.People)
		p.Grant("ada", "*", inprocess.EveryRight&^access.RightMarkAny)
		p.Grant("eve", "*", inprocess.EveryRight&^access.RightMarkAny)
		p.Grant("ops", "*", access.RightMarkAny)
		g := guardedGateway(t, p, func(s *setup) { s.Service.Mode = mode })
		ada, eve, ops := g.as("ada"), g.as("eve"), g.as("ops")
		ada.request("1", "nonce_allocate", `["a",2]`)
		ada.wantResult("1")
		for _, call := range calls[1:5] {
			eve.request("2", call.method, strings.Replace(call.params, `"s"`, `"a"`, 1))
			if data := eve.wantError("2", "forbidden"); data["right"] != "mark-any" || len(data) != 2 {
				t.Errorf("%s %s: got %v, want the right that is missing and nothing else", mode, call.method, data)
			}
		}
		ops.request("3", "nonce_markRecyclable", `["a",0]`)
		ops.wantResult("3")
		ada.request("4", "nonce_markRecyclable", `["a",1]`)
		ada.wantResult("4")
	}
}
