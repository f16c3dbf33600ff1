package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"noncegate/internal/testenv/wait"
	"noncegate/nonce"
)

const (
	account      = ofChain + "0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
	otherAccount = ofChain + "0x52908400098527886e0f7030069857d2e4169ee7"
)

// patientChain is one whose first word a test awaits.
func patientChain() (*fakeChain, func(*setup)) {
	f := &fakeChain{patient: true}
	chain := withChain(f)
	return f, func(s *setup) { chain(s); s.ws.ChainWait = patience }
}

// awaitWaits returns when n requests wait for the chain.
func (f *fakeChain) awaitWaits(t testing.TB, n int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%d requests to wait for the chain", n), func() bool { return f.waits() == n })
}

func TestTheFirstRequestOfASignerWaitsForItsChainAndWhatFollowsKeepsItsOrder(t *testing.T) {
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			chain, with := patientChain()
			g := startGateway(t, mode, with)
			c := g.dial()
			c.request("first", "nonce_allocate", `["`+account+`"]`)
			c.request("status", "nonce_status", `["`+account+`"]`)
			c.request("second", "nonce_allocate", `["`+account+`",2]`)
			c.request("mark", "nonce_markRecyclable", `["`+account+`",7]`)
			c.request("other", "nonce_allocate", `["chainless"]`)
			c.wantResult("other")
			c.request("read", "nonce_status", `["`+otherAccount+`"]`) // asks for nothing that the chain knows
			c.wantResult("read")
			chain.awaitWaits(t, 2)
			if used, _ := g.srv.Inflight(); used != 4 {
				t.Errorf("%d requests are in flight, want the 4 that wait", used)
			}
			chain.answer(nonce.ChainView{Mined: 7, Start: 7})
			want := map[string]string{"first": "7", "second": "8", "mark": "7"}
			for range 4 {
				r := c.reply()
				result, _ := r["result"].(map[string]any)
				id := r["id"].(string)
				if id == "status" && result["next"] != json.Number("8") {
					t.Errorf("the status between shows %v", r)
				}
				if n, ok := want[id]; ok && result["nonce"] != json.Number(n) {
					t.Errorf("%s is given %v, want nonce %s", id, r, n)
				}
			}
			g.awaitNoLines()
			c.request("later", "nonce_allocate", `["`+account+`"]`)
			c.wantResult("later")
		})
	}
}

func TestWhatAnotherNodeBringsWaitsForTheChainToo(t *testing.T) {
	chain, with := patientChain()
	g := startGateway(t, with)
	node := g.dialWith(asNode("n2"))
	node.request("1", "nonce_allocate", `{"signer":"`+account+`","principal":"00000000000000ab"}`)
	node.request("2", "nonce_markSigned", `{"signer":"`+account+`","nonce":4,"txHash":"0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060","forwarded":true,"take":true}`)
	chain.awaitWaits(t, 2)
	chain.answer(nonce.ChainView{Mined: 3, Start: 3})
	if r := node.wantResult("1"); r["nonce"] != json.Number("3") {
		t.Errorf("got %v", r)
	}
	if r := node.wantResult("2"); r["nonce"] != json.Number("4") || r["attempt"] != json.Number("1") || r["status"] != "HELD" {
		t.Errorf("got %v", r)
	}
}

func TestAChainThatDoesNotAnswerIsWaitedForNoLongerThanSaid(t *testing.T) {
	chain := &fakeChain{patient: true}
	g := startGateway(t, withChain(chain), func(s *setup) { s.ws.ChainWait = time.Millisecond })
	c := g.dial()
	for _, call := range [][2]string{
		{"nonce_allocate", `["` + account + `"]`}, {"nonce_repair", `["` + account + `"]`},
		{"nonce_allocate", `{"signer":"` + account + `","requestId":"r"}`},
	} {
		c.request("1", call[0], call[1])
		if d := c.wantError("1", "unavailable"); d["outcome"] != "none" {
			t.Errorf("%s: got %v", call[0], d)
		}
	}
	chain.endWaits() // too late, and nobody is harmed
	c.request("2", "nonce_allocate", `["a"]`)
	c.wantResult("2")
	g.awaitInflight(0)
	if n := g.next(account); n != 0 {
		t.Errorf("%d nonces were handed out", n)
	}
}

// A request that is used again must not be decided by the wait of the one before.
func TestALateWordOfTheChainDecidesNothingElse(t *testing.T) {
	chain := &fakeChain{patient: true}
	g := startGateway(t, withChain(chain), withLocks(newLocksmith()), func(s *setup) { s.ws.ChainWait = time.Millisecond })
	c := g.dial()
	for range 50 {
		c.request("1", "nonce_allocate", `["`+account+`"]`)
		c.wantError("1", "unavailable")
	}
	var late sync.WaitGroup
	late.Go(chain.endWaits)
	for range 50 {
		c.request("2", "nonce_allocate", guarded("a", `{"key":"k"}`))
		c.wantResult("2")
		c.request("3", "nonce_markRecyclable", `["a",0]`)
		c.reply()
	}
	late.Wait()
	g.awaitNoLines()
}

func TestARequestThatWaitsForItsChainAndItsLockNeedsBoth(t *testing.T) {
	for _, chainFirst := range []bool{true, false} {
		chain, with := patientChain()
		locks := newLocksmith()
		g := startGateway(t, with, withLocks(locks))
		open := locks.close()
		c := g.dial()
		c.request("1", "nonce_allocate", guarded(account, `{"key":"k"}`))
		chain.awaitWaits(t, 1)
		answer := func() { chain.answer(nonce.ChainView{Mined: 9, Start: 9}) }
		first, second := open, answer
		if chainFirst {
			first, second = answer, open
		}
		first()
		c.request("2", "nonce_allocate", `["a"]`)
		c.wantResult("2")
		if used, _ := g.srv.Inflight(); used != 1 {
			t.Errorf("chain first %t: %d requests are in flight, want the one that waits", chainFirst, used)
		}
		second()
		if r := c.wantResult("1"); r["nonce"] != json.Number("9") {
			t.Errorf("got %v", r)
		}
	}
}

func TestWorkOfAClientThatIsGoneWhenItsChainAnswersIsNotDone(t *testing.T) {
	chain, with := patientChain()
	g := startGateway(t, with)
	c := g.dial()
	c.request("1", "nonce_allocate", `["`+account+`"]`)
	chain.awaitWaits(t, 1)
	conn := g.srv.conns.all()[0]
	must(t, c.conn.Close())
	wait.Until(t, "the end of the connection", conn.gone.Load)
	chain.answer(nonce.ChainView{Mined: 5, Start: 5})
	g.awaitInflight(0)
	if n := g.next(account); n != 0 {
		t.Errorf("the cursor is %d: something was handed out to nobody", n)
	}
}

func TestAWaitForAChainEndsWhenTheGatewayGoesAway(t *testing.T) {
	for name, end := range map[string]func(*Server, context.Context) error{"drain": (*Server).Drain, "stop": (*Server).Stop} {
		t.Run(name, func(t *testing.T) {
			chain, with := patientChain()
			g := startGateway(t, with)
			c := g.dial()
			c.request("1", "nonce_allocate", `["`+account+`"]`)
			chain.awaitWaits(t, 1)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			ended := make(chan error, 1)
			go func() { ended <- end(g.srv, ctx) }()
			if name == "drain" {
				c.wantError("1", "unavailable")
				if code := c.closed(); code != 1012 {
					t.Errorf("closed with %d", code)
				}
			}
			must(t, wait.For(t, ended, "the end"))
			if took := time.Since(began); took > patience/2 {
				t.Errorf("it took %v", took)
			}
			if len(g.srv.sights.waiting) != 0 {
				t.Errorf("%d waits are left", len(g.srv.sights.waiting))
			}
		})
	}
}

func TestThePlacesOfRequestsThatWaitAreBounded(t *testing.T) {
	chain, with := patientChain()
	g := startGateway(t, with, func(s *setup) { s.ws.MaxInflight, s.ws.MaxBatch = 3, 3 })
	c := g.dial()
	for range 3 {
		c.request("waits", "nonce_allocate", `["`+account+`"]`)
	}
	c.request("more", "nonce_allocate", `["`+account+`"]`)
	if d := c.wantError("more", "server_busy"); d["stage"] != "connection" {
		t.Errorf("got %v", d)
	}
	chain.answer(nonce.ChainView{})
	for range 3 {
		c.wantResult("waits")
	}
}

func TestAKnownChainCostsNoAllocation(t *testing.T) {
	chain := &fakeChain{view: nonce.ChainView{Known: true}}
	c := &conn{srv: &Server{cfg: Config{ChainReady: chain.ready}}}
	r := &request{conn: c, op: nonce.Op{Kind: nonce.KindAllocate, Signer: account}}
	if n := testing.AllocsPerRun(100, func() {
		if c.firstSight(r) != nil {
			t.Error("it waits")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	asked := chain.asked
	r.op.OnlyKnown = true
	if c.firstSight(r); chain.asked != asked {
		t.Error("the chain is asked for what hands nothing out")
	}
}
