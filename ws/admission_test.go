package ws

import (
	"fmt"
	"testing"

	"noncegate/internal/events"
	"noncegate/nonce"
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

// hanging is a subscriber whose Offer never returns until it is let go.
type hanging chan struct{}

func (h hanging) Offer([]byte, int64) bool { <-h; return true }

// hangPostDB makes the events of a signer hang and returns what lets them go.
func (g *gateway) hangPostDB(signer string) {
	g.Helper()
	h := make(hanging)
	s := g.Hub.Subscribe(h, events.Everywhere, []string{signer})
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
				a.request(fmt.Sprint(i), "nonce_allocate", `["held"]`)
			}
			wait.For(t, waiting, "the first commit")
			b := a
			if c.other {
				g.awaitInflight(c.fill)
				b = g.dial()
			}
			b.request("more", "nonce_allocate", `["refused"]`)
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
				if r := from.reply(); r["error"] != nil {
					data = wantError(t, r, "more", "server_busy")
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
					c.request(fmt.Sprint(i), "nonce_allocate", `["a"]`)
				}
				for range n {
					r := c.reply()
					result, _ := r["result"].(map[string]any)
					if fmt.Sprint(r["id"]) != fmt.Sprint(result["nonce"]) {
						t.Fatalf("request %v was given %v", r["id"], r)
					}
				}
			})
		}
	}
}
