package ws

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"noncegate/test/lab/wait"
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

// A request that is used again must not be decided by the wait of the one before.
func TestALateWordOfTheChainDecidesNothingElse(t *testing.T) {
	chain := &fakeChain{patient: true}
	g := startGateway(t, withChain(chain), withLocks(newLocksmith()), func(s *setup) { s.ws.ChainWait = time.Millisecond })
	c := g.dial()
	for range 50 {
		c.askRefused("1", "nonce_allocate", `["`+account+`"]`, "unavailable")
	}
	var late sync.WaitGroup
	late.Go(chain.endWaits)
	for range 50 {
		c.ask("2", "nonce_allocate", guarded("a", `{"key":"k"}`))
		c.call("3", "nonce_markRecyclable", `["a",0]`)
	}
	late.Wait()
	g.awaitNoLines()
}

func TestAWaitForAChainEndsWhenTheGatewayGoesAway(t *testing.T) {
	for name, end := range map[string]func(*Server, context.Context) error{"drain": (*Server).Drain, "stop": (*Server).Stop} {
		t.Run(name, func(t *testing.T) {
			chain, with := patientChain()
			g := startGateway(t, with)
			c := g.dial()
			c.request("1", "nonce_allocate", `["`+account+`"]`)
			chain.awaitWaits(t, 1)
			ended := make(chan error, 1)
			go func() { ended <- end(g.srv, t.Context()) }() // a context without an end
			if name == "drain" {
				c.wantError("1", "unavailable")
				c.wantClosed(1012)
			}
			must(t, wait.For(t, ended, "the end"))
			if n := chain.waits(); n != 1 { // its word is late, and decides nothing
				t.Errorf("the chain is waited for by %d", n)
			}
			chain.endWaits()
		})
	}
}
