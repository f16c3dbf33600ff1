package ws

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/quota"
	"noncegate/internal/events"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
)

// Each signer that a subscription names is kept: without a bound one client with the
// right to subscribe takes all memory there is.
func TestTheSignersThatSubscriptionsNameAreBounded(t *testing.T) {
	g := startGateway(t, letIn("ada", "bob", "eve"), func(s *setup) { s.ws.MaxSubscriptions = 64 })
	next := 0
	subscribe := func(c *client, names int) map[string]any {
		t.Helper()
		signers := make([]string, names)
		for i := range signers {
			signers[i] = fmt.Sprintf(`"%d"`, next)
			next++
		}
		return c.Call("s", "nonce_subscribe", `["events",{"signers":[`+strings.Join(signers, ",")+`]}]`)
	}
	full := func(name string) (c *client, id string) {
		t.Helper()
		c = g.as(name)
		for range connectionNames / events.MaxSigners {
			r := subscribe(c, events.MaxSigners)
			if r["error"] != nil {
				t.Fatalf("%s: %v", name, r)
			}
			id = r["result"].(string)
		}
		return c, id
	}
	last, id := full("ada")
	inprocess.WantError(t, subscribe(last, events.MaxSigners+1), "s", "invalid_params")
	inprocess.WantError(t, subscribe(last, 1), "s", "invalid_request")
	for range principalNames/connectionNames - 1 {
		full("ada")
	}
	more := g.as("ada")
	if data := inprocess.WantError(t, subscribe(more, 1), "s", "server_busy"); data["stage"] != "quota" {
		t.Errorf("got %v", data)
	}
	for range principalNames / connectionNames {
		full("bob")
	}
	eve := g.as("eve")
	if data := inprocess.WantError(t, subscribe(eve, 1), "s", "server_busy"); data["stage"] != "quota" {
		t.Errorf("got %v", data)
	}
	last.Call("u", "nonce_unsubscribe", `["`+id+`"]`)
	if r := subscribe(eve, events.MaxSigners); r["error"] != nil {
		t.Errorf("the room of a subscription that ended is not free: %v", r)
	}
	must(t, eve.Conn.Close())
	wait.Until(t, "the signers of a connection that ended to count no more", func() bool { return g.srv.names.Used() == nodeNames-events.MaxSigners })
}

// Sockets that do not authenticate have a bound of their own, and what is beyond is
// closed unread. Nodes and clients that are in are not touched.
func TestSocketsThatDoNotAuthenticateAreBounded(t *testing.T) {
	h := startRaw(t, letIn("ada"), func(s *setup) { s.ws.Addresses = quota.AddressConfig{Waiting: 3, WaitingEach: 2} })
	in := h.as("ada")
	in.settle()
	var open []*raw
	for range 2 {
		r := h.connect(t)
		defer r.Close()
		r.write([]byte("GET"))
		open = append(open, r)
	}
	wait.Until(t, "two sockets to wait", func() bool { return h.srv.Waiting() == 2 })
	third := h.connect(t)
	defer third.Close()
	if _, err := third.in.ReadByte(); err == nil || errors.Is(err, io.ErrNoProgress) {
		t.Errorf("the third is read: %v", err)
	}
	h.WantMetrics(map[string]float64{"upgrade_refused_total{address_waiting}": 1})
	must(t, open[0].Close())
	wait.Until(t, "one socket to wait", func() bool { return h.srv.Waiting() == 1 })
	h.as("ada").settle()
	in.settle()
}

func TestAnAddressThatConnectsTooFastIsClosedUnread(t *testing.T) {
	h := startRaw(t, letIn("ada"), func(s *setup) {
		s.ws.Addresses.Sockets = quota.Rate{PerSecond: 0.001, Burst: 2} // the warm-up took one
	})
	h.as("ada").settle()
	r := h.connect(t)
	defer r.Close()
	if _, err := r.in.ReadByte(); err == nil {
		t.Error("a third one is answered")
	}
	h.WantMetrics(map[string]float64{"upgrade_refused_total{address_fast}": 1})
}

// It is refused for ever, and read and answered each time.
func TestABatchThatIsTooLargeForAQuotaRests(t *testing.T) {
	inBubble(t, limited("ada", access.Quota{RequestsPerSecond: 1, Burst: 5}), func(t *testing.T, r *raw) {
		r.upgrade("Authorization: Bearer ada\r\n")
		one := `{"jsonrpc":"2.0","id":1,"method":"nonce_status","params":["a"]}`
		began := time.Now()
		for range 3 {
			r.write(text("[" + strings.Repeat(one+",", 9) + one + "]"))
			r.want(opText, "never lets through more than 5")
		}
		if took := time.Since(began); took < 2*maxRest {
			t.Errorf("three of them were read within %v", took)
		}
	})
}
