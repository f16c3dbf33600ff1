//go:build unix

package nodes

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// anyOf allocates of a signer that the node has. Which shards it keeps is known once all of them
// are where they should be ([e2e.Settled]).
func anyOf(t *testing.T, c *e2e.Peer) (account string, held wire.AllocateResult) {
	t.Helper()
	for i := 1; i <= 100; i++ {
		account = fmt.Sprintf("eip155:1:0x%040x", i)
		switch r := c.Call(wire.MethodAllocate, e2e.Allocation(account, "")); {
		case r.Error == nil:
			return account, e2e.Decode[wire.AllocateResult](t, r)
		case r.Reason() != "not_owner":
			t.Fatalf("%s: %v", account, r.Error)
		}
	}
	t.Fatal("the node has no shard")
	return "", held
}

func TestAPausedOwnerThatWakesAfterTheTakeOverIsFenced(t *testing.T) {
	t.Parallel()
	db := e2e.Database(t)
	// What is fenced is told so, and not routed to the new owner.
	a := e2e.Launch(t, "--store="+db, "--node-id=a", "--lease-ttl=3s", "--forward=off")
	b := e2e.Launch(t, "--store="+db, "--node-id=b", "--lease-ttl=3s", "--forward=off")
	toA, toB := a.Connect(), b.Connect()
	e2e.Settled(t, db, "a", "b")
	account, held := anyOf(t, toA)

	a.Pause()
	// These reach a while it is stopped: it will try them under its old token.
	late := []int64{
		toA.Send(wire.MethodAllocate, e2e.Allocation(account, "late")),
		toA.Send(wire.MethodMarkRecyclable, `{"signer":"`+account+`","nonce":0}`),
	}
	var taken wire.AllocateResult
	b.Await("the lease of a to end", func() bool {
		r := toB.Call(wire.MethodAllocate, e2e.Allocation(account, "first-of-b"))
		if r.Error != nil && r.Reason() != "not_owner" {
			t.Fatalf("%v", r.Error)
		}
		if r.Error == nil {
			taken = e2e.Decode[wire.AllocateResult](t, r)
		} else if r.Error.Data.OwnerNode != "a" || r.Error.Data.OwnerURL != a.URL {
			t.Fatalf("the owner is said to be %+v", r.Error.Data)
		}
		return r.Error == nil
	})
	if taken.Nonce != held.Nonce+1 || taken.FencingToken <= held.FencingToken {
		t.Fatalf("a had %+v, b took over with %+v", held, taken)
	}
	before := e2e.Everything(t, db)

	a.Signal(syscall.SIGCONT)
	fenced := false
	for _, id := range late {
		// A batch that begins after the first was fenced, or after a heartbeat, knows the owner.
		r := toA.Answer(id)
		if fenced = fenced || r.Reason() == "fenced"; r.Reason() != "fenced" && r.Reason() != "not_owner" {
			t.Errorf("request %d of the paused owner: %s %v", id, r.Reason(), r.Error)
		}
	}
	if after := e2e.Everything(t, db); after != before {
		t.Errorf("the paused owner changed something\nbefore\n%s\nafter\n%s", before, after)
	}
	if !b.Logged("took over", `"from_node":"a"`, `"owner_node":"b"`, fmt.Sprintf(`"fencing_token":%d`, taken.FencingToken), `"shard"`) {
		t.Error("b did not log the take-over")
	}
	if fenced {
		a.Says(`"provided_token":1`)
		if !a.Metric(`noncegate_fence_rejects_total{op="allocate"} 1`) {
			t.Error("a did not count what was fenced")
		}
	}

	seen := map[int64]bool{held.Nonce: true, taken.Nonce: true}
	b.Await("20 more nonces to be handed out", func() bool {
		// One of the two has the shard, or none while b gives it back.
		for _, c := range []*e2e.Peer{toA, toB} {
			if r := c.Call(wire.MethodAllocate, e2e.Allocation(account, "")); r.Error == nil {
				n := e2e.Decode[wire.AllocateResult](t, r).Nonce
				if seen[n] {
					t.Errorf("nonce %d has two holders", n)
				}
				seen[n] = true
			} else if r.Reason() != "not_owner" {
				t.Errorf("%v", r.Error)
			}
		}
		return t.Failed() || len(seen) >= 22
	})
	e2e.Consistent(t, db)
}

func TestASecondStartOfANodeTakesOverAtOnceAndTheFirstEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ttl   string
		touch bool // the first is asked for the signer it lost
	}{
		"noticed by its heartbeat":       {"1s", false},
		"noticed by a request, long ttl": {"10m", true},
	} {
		t.Run(name, func(t *testing.T) {
			db := e2e.Database(t)
			first := e2e.Launch(t, "--store="+db, "--node-id=same", "--lease-ttl="+tt.ttl)
			toFirst := first.Connect()
			held := toFirst.Allocate(e2e.Account, "")

			second := e2e.Launch(t, "--store="+db, "--node-id=same", "--lease-ttl="+tt.ttl)
			taken := second.Connect().Allocate(e2e.Account, "") // at once, without not_owner
			if taken.Nonce != held.Nonce+1 || taken.FencingToken <= held.FencingToken {
				t.Fatalf("the first had %+v, the second %+v", held, taken)
			}
			before := e2e.Everything(t, db)
			if tt.touch {
				toFirst.Want("fenced", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
			}
			_ = toFirst.Close() // it need not wait for this client
			if code := first.Exit(); code != e2e.ExitFailure {
				t.Errorf("the first ended with %d", code)
			}
			lines := strings.Split(strings.TrimSpace(first.Printed()), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "gateway: ") || !strings.Contains(last, "later start of the same node id") {
				t.Errorf("the first ended with the words %q", last)
			}
			if after := e2e.Everything(t, db); after != before {
				t.Errorf("the first changed something\nbefore\n%s\nafter\n%s", before, after)
			}
			if live := e2e.Query(t, db, `SELECT NOT gone AND lease_until > store_millis(), incarnation FROM gateway_node`); live != "(t,2)" {
				t.Errorf("the registry shows %s", live)
			}
		})
	}
}
