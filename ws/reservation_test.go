package ws

import (
	"fmt"
	"maps"
	"testing"

	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// rejections makes the gateway tell of every request it refuses as busy. Call it
// before the first connection.
func (g *gateway) rejections() <-chan string {
	stages := make(chan string, 1000)
	g.srv.rejected = func(stage string, n int) {
		for range n {
			stages <- stage
		}
	}
	return stages
}

// hanging is a subscriber whose Take never returns until it is let go.
type hanging chan struct{}

func (h hanging) Take(*events.Event, int64) bool { <-h; return true }

// hangPostDB makes the events of a signer hang and returns what lets them go.
func (g *gateway) hangPostDB(signer string) {
	g.Helper()
	h := make(hanging)
	s := g.Hub.Subscribe(h, []string{signer})
	g.Cleanup(func() { close(h); s.Close() })
}

// Each case fills one stage with requests of client a for signer "held", whose
// commit waits, or with what it says itself. One more request, for signer
// "refused", must be told the stage, at once or when there is room to say so.
func TestAFullStageIsNamedAndNothingHappens(t *testing.T) {
	for _, c := range []struct {
		stage   string
		name    string
		fill    int // requests in flight
		change  func(*setup)
		prepare func(*gateway)
		other   bool // the refused request comes from another connection
	}{
		{stage: wire.StageConnection, name: "in-flight slots", fill: 2,
			change: func(s *setup) { s.ws.MaxInflight, s.ws.MaxBatch = 2, 2 }},
		{stage: wire.StageConnection, name: "bytes", fill: 5,
			change: func(s *setup) { m := &s.ws.Writer.Marks; m.Low, m.High, m.Max = 10, 20, 6500 }},
		{stage: wire.StageConnection, name: "messages", fill: 2,
			change: func(s *setup) { s.ws.Writer.MaxMessages = 2 }},
		{stage: wire.StageInflight, name: "slots", fill: 2, other: true,
			change: func(s *setup) { s.ws.MaxInflight, s.ws.MaxBatch, s.ws.MaxInflightTotal = 2, 2, 2 }},
		{stage: wire.StageWorker, name: "queue", fill: 3, other: true,
			change: func(s *setup) { s.Service.Workers, s.Service.QueueCapacity = 1, 3 }},
		{stage: wire.StageEncode, name: "share", fill: 2,
			change: func(s *setup) { s.ws.Writer.Share = 2 }},
		{stage: wire.StageEncode, name: "pool", fill: 2, other: true,
			change: func(s *setup) { s.Encode.Queue = 2 }},
		{stage: wire.StagePostDB, name: "worker", fill: 1,
			change:  func(s *setup) { s.PostDB.QueueShare, s.Service.Workers = 1, 1 },
			prepare: func(g *gateway) { g.hangPostDB("held"); g.hangPostDB("refused") }},
	} {
		t.Run(c.stage+" "+c.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, c.change)
			rejected := g.rejections()
			if c.prepare != nil {
				c.prepare(g)
			}
			waiting, release := g.holdWrites()
			a := g.dial()
			for i := range c.fill {
				a.Request(fmt.Sprint(i), "nonce_allocate", `["held"]`)
			}
			wait.For(t, waiting, "the first commit")
			b := a
			if c.other {
				g.awaitInflight(c.fill)
				b = g.dial()
			}
			b.Request("more", "nonce_allocate", `["refused"]`)
			if stage := wait.For(t, rejected, "the refusal"); stage != c.stage {
				t.Fatalf("refused at %s, want %s", stage, c.stage)
			}
			release()
			var data map[string]any
			for answers := 0; answers < c.fill+1; answers++ {
				from := a
				if c.other && answers == c.fill {
					from = b
				}
				if r := from.Reply(); r["error"] != nil {
					data = inprocess.WantError(t, r, "more", "server_busy")
				}
			}
			if data["stage"] != c.stage || fmt.Sprint(data["retryAfterMs"]) != "50" {
				t.Errorf("got %v, want stage %s and a time to retry", data, c.stage)
			}
			if n := g.next("refused"); n != 0 {
				t.Errorf("the refused request took %d nonces", n)
			}
		})
	}
}

func TestRequestsOfAConnectionForOneSignerKeepTheirOrder(t *testing.T) {
	for _, mode := range []nonce.Mode{nonce.WorkerQueue, nonce.Basic} {
		for _, reject := range []nonce.Reject{nonce.FailFast, nonce.CallerRuns} {
			t.Run(string(mode)+" "+string(reject), func(t *testing.T) {
				t.Parallel()
				g := startGateway(t, func(s *setup) {
					s.Service.Mode, s.Service.Reject = mode, reject
					if reject == nonce.CallerRuns {
						s.Service.QueueCapacity = 3
					}
				})
				c := g.dial()
				const n = 200
				for i := range n {
					c.Request(fmt.Sprint(i), "nonce_allocate", `["a"]`)
				}
				for range n {
					r := c.Reply()
					result, _ := r["result"].(map[string]any)
					if fmt.Sprint(r["id"]) != fmt.Sprint(result["nonce"]) {
						t.Fatalf("request %v was given %v", r["id"], r)
					}
				}
			})
		}
	}
}

// taken counts what is reserved in the gateway, by what holds it.
func (g *gateway) taken(c *conn) map[string]int64 {
	inflight, _ := g.srv.clients.used()
	queued, _ := g.Service.Queued()
	depth := c.out.Depth()
	return map[string]int64{
		"places in flight":        int64(inflight),
		"the connection's share":  int64(c.share.Used()),
		"bytes of the answer":     depth.Promised,
		"messages":                int64(depth.Messages),
		"places for the encoding": int64(g.Encode.Reserved()),
		"slots of the worker":     int64(queued),
		"slots of the guard":      int64(g.Metric("guard_slots_used")),
		"slots for events":        int64(g.PostDB.Reserved()),
	}
}

// A request reserves something of each kind, and an array for each of its requests. One part
// that is not given back is seen as just that.
func TestAReservationIsTakenWholeAndEachPartIsGivenBackOnce(t *testing.T) {
	g := startGateway(t, withLocks(newLocksmith()))
	g.dial().Ask("1", "nonce_subscribe", `["events"]`)
	c := g.anyConn()
	wait.Until(t, "the end of what the reply took", func() bool { return g.taken(c)["messages"] == 0 })
	reserved := func(n int) (answer *reservation, requests []*request) {
		call := wire.Call{ID: []byte("1"), Method: []byte(wire.MethodAllocate), Params: []byte(guarded("a", `{"key":"k"}`))}
		for range n {
			requests = append(requests, c.newRequest(&call))
		}
		answer = &requests[0].took
		if n > 1 {
			answer = &newBatch(c, requests).took
		}
		if err := c.reserve(answer, 1000, requests); err != nil {
			t.Fatal(err)
		}
		return answer, requests
	}
	giveBack := func(answer *reservation, requests []*request) {
		for range 2 { // the second time there is nothing left to give
			answer.giveBack()
			for _, r := range requests {
				r.took.giveBack()
			}
		}
	}
	wait.Until(t, "the end of what the subscription took", func() bool {
		return g.taken(c)["messages"] == 0 && g.taken(c)["places in flight"] == 0
	})
	nothing := g.taken(c)
	for _, n := range []int{1, 3} {
		answer, requests := reserved(n)
		for what, amount := range g.taken(c) {
			if want := nothing[what] + 1; amount < want {
				t.Errorf("%d requests reserve no %s", n, what)
			}
		}
		giveBack(answer, requests)
		if left := g.taken(c); !maps.Equal(left, nothing) {
			t.Errorf("%d requests leave %v, before there was %v", n, left, nothing)
		}
	}
	parts := map[string]func(*reservation){
		"places in flight":    func(v *reservation) { v.inflight = 0 },
		"bytes of the answer": func(v *reservation) { v.answer = 0 },
		"slots of the worker": func(v *reservation) { v.slot.Held = false },
		"slots of the guard":  func(v *reservation) { v.lock = false },
		"slots for events":    func(v *reservation) { v.slot.Events = false },
	}
	for what, forget := range parts {
		answer, requests := reserved(1)
		kept := *answer
		forget(answer)
		giveBack(answer, requests)
		if left := g.taken(c); left[what] == nothing[what] {
			t.Errorf("nobody sees that the %s were not given back: %v", what, left)
		}
		rest := kept // only what was forgotten
		for other, forget := range parts {
			if other != what {
				forget(&rest)
			}
		}
		rest.giveBack()
	}
	if left := g.taken(c); !maps.Equal(left, nothing) {
		t.Errorf("at the end there is %v, before there was %v", left, nothing)
	}
}
