//go:build unix

// Package cluster tests gateways that serve as one: requests and events reach the right node from any other.
package cluster

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func TestMain(m *testing.M) { e2e.Main(m) }

func TestLongARequestAtAnyNodeIsServedByTheOneThatOwnsItsSigner(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b c", "--lease-ttl=10s")
	conns := f.ConnectEach()
	signers := e2e.Signers("signer", 12)
	acquired := func() float64 { return f.Sum(`noncegate_lease_acquire_total{result="acquired"}`) }
	before := acquired()
	// Whoever is asked first, a signer settles where it belongs.
	owner := e2e.Owners(conns["a"], signers)
	for _, name := range f.Names {
		if len(e2e.OwnedBy(owner, name)) == 0 {
			t.Errorf("%s owns none of %d signers: %v", name, len(signers), owner)
		}
	}
	at := func(i int) *e2e.Peer { return conns[f.Names[i%len(f.Names)]] }
	for i, s := range signers {
		first := at(i).Allocate(s, "once")
		if again := at(i+1).Allocate(s, "once"); first.Nonce != 1 || again.Nonce != 1 || again.Attempt != 1 || again.FencingToken != first.FencingToken {
			t.Errorf("%s: %+v, and repeated at another node %+v", s, first, again)
		}
		at(i+2).Want("conflict", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"requestId":"once","count":2}`, s))
		at(i+1).Want("ok", wire.MethodMarkUsed, e2e.Mark(s, 1))
		at(i+2).Want("ok", wire.MethodMarkUsed, e2e.Mark(s, 1)) // told the same
		at(i).Want("conflict", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":1}`, s))
		at(i).Want("conflict", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":0,"txHash":%q,"attempt":7}`, s, e2e.Hash))
		at(i+1).Want("not_found", wire.MethodMarkUsed, e2e.Mark(s, 99))
		at(i+2).Want("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":0}`, s))
		if got := at(i+1).Allocate(s, ""); got.Nonce != 0 || got.Attempt != 2 {
			t.Errorf("%s: the released nonce came back as %+v", s, got)
		}
		floor := e2e.Decode[wire.FloorResult](t, at(i+2).Want("ok", wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":10}`, s)))
		several := e2e.Decode[wire.AllocateResult](t, at(i).Want("ok", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"count":3}`, s)))
		if floor.Next != 10 || several.Nonce != 10 || len(several.Nonces) != 3 {
			t.Errorf("%s: floor %+v, then %+v", s, floor, several)
		}
		for name, c := range conns {
			if st := e2e.StatusOf(c, s); st.Owner != owner[s] || st.OwnerURL != f.Nodes[owner[s]].URL || st.Next != 13 {
				t.Errorf("%s shows %s as %+v, want the owner %s", name, s, st, owner[s])
			}
		}
	}
	// Shards have been acquired before.
	if got := acquired() - before; got != 0 {
		t.Errorf("leases were acquired %v times for %d signers", got, len(signers))
	}
	if f.Sum(`noncegate_forwarded_total{result="answered"}`) == 0 || f.Sum(`noncegate_forwarded_total{result="doubtful"}`) != 0 {
		t.Error("nothing was forwarded, or in doubt")
	}
	e2e.Consistent(t, f.DB)
}

// TestOrderIsKeptAcrossNodesAlsoWhileTheOwnerDrains: each allocate gets the next nonce and each mark is of a nonce that the request
// before it was given, so every answer is right only if all before it were done, in order.
func TestOrderIsKeptAcrossNodesAlsoWhileTheOwnerDrains(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b c", "--lease-ttl=10s")
	c := f.Nodes["a"].Connect()
	far := e2e.OwnedBy(e2e.Owners(c, e2e.Signers("signer", 12)), "b")
	if len(far) == 0 {
		t.Fatal("b owns nothing")
	}
	const rounds, window = 200, 200
	half, room := make(chan struct{}), make(chan struct{}, window)
	first := c.Last + 1
	var ends sync.WaitGroup
	ends.Go(func() {
		for i := range rounds {
			if i == rounds/2 {
				close(half)
			}
			for j := range 2 * len(far) {
				s := far[j/2]
				method, params := wire.MethodAllocate, e2e.Allocation(s, "")
				if j%2 == 1 {
					method, params = wire.MethodMarkUsed, e2e.Mark(s, int64(i+1))
				}
				room <- struct{}{}
				expect.Check(t, c.Request(first+int64(i*2*len(far)+j), method, params))
			}
		}
	})
	ends.Go(func() {
		for range rounds * 2 * len(far) {
			r, err := c.Read()
			if <-room; err != nil {
				t.Error(err)
				continue
			}
			n := int(r.ID - first)
			if r.Error != nil {
				t.Errorf("request %d was refused: %v", n, r.Error)
			} else if got := e2e.Decode[wire.MarkResult](t, r); got.Nonce != int64(n/(2*len(far))+1) {
				t.Errorf("request %d for %s was about nonce %d", n, got.Signer, got.Nonce)
			}
		}
	})
	<-half
	f.Nodes["b"].Signal(syscall.SIGTERM)
	ends.Wait()
	f.Nodes["b"].Ends()
	e2e.Consistent(t, f.DB)
}
