//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"noncegate/wire"
)

// account is the signer of the tests that need one.
const account = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"

func TestAPausedOwnerThatWakesAfterTheTakeOverIsFenced(t *testing.T) {
	t.Parallel()
	db := database(t)
	// What is fenced is told so, and not routed to the new owner.
	a := launch(t, "--store="+db, "--node-id=a", "--lease-ttl=1s", "--forward=off")
	b := launch(t, "--store="+db, "--node-id=b", "--lease-ttl=1s", "--forward=off")
	toA, toB := a.connect(), b.connect()
	held := toA.allocate(account, "")

	a.pause()
	// These reach a while it is stopped: it will try them under its old token.
	late := []int64{
		toA.send(wire.MethodAllocate, allocation(account, "late")),
		toA.send(wire.MethodMarkRecyclable, `{"signer":"`+account+`","nonce":0}`),
	}
	var taken wire.AllocateResult
	b.await("the lease of a to end", func() bool {
		r := toB.call(wire.MethodAllocate, allocation(account, "first-of-b"))
		if r.Error != nil && r.reason() != "not_owner" {
			t.Fatalf("%v", r.Error)
		}
		if r.Error == nil {
			taken = decode[wire.AllocateResult](t, r)
		} else if r.Error.Data.OwnerNode != "a" || r.Error.Data.OwnerURL != a.url {
			t.Fatalf("the owner is said to be %+v", r.Error.Data)
		}
		return r.Error == nil
	})
	if taken.Nonce != held.Nonce+1 || taken.FencingToken <= held.FencingToken {
		t.Fatalf("a had %+v, b took over with %+v", held, taken)
	}
	before := everything(t, db)

	a.signal(syscall.SIGCONT)
	fenced := false
	for _, id := range late {
		// A batch that begins after the first was fenced, or after a heartbeat, knows the owner.
		r := toA.answer(id)
		if fenced = fenced || r.reason() == "fenced"; r.reason() != "fenced" && r.reason() != "not_owner" {
			t.Errorf("request %d of the paused owner: %s %v", id, r.reason(), r.Error)
		}
	}
	if after := everything(t, db); after != before {
		t.Errorf("the paused owner changed something\nbefore\n%s\nafter\n%s", before, after)
	}
	if !b.logged("took over", `"from_node":"a"`, `"owner_node":"b"`, fmt.Sprintf(`"fencing_token":%d`, taken.FencingToken), `"shard"`) {
		t.Error("b did not log the take-over")
	}
	if fenced {
		a.says(`"provided_token":1`)
		if !a.metric(`noncegate_fence_rejects_total{op="allocate"} 1`) {
			t.Error("a did not count what was fenced")
		}
	}

	seen := map[int64]bool{held.Nonce: true, taken.Nonce: true}
	for range 20 {
		// Where the lease is does not matter: one of the two has it.
		for _, c := range []*peer{toA, toB} {
			if r := c.call(wire.MethodAllocate, allocation(account, "")); r.Error == nil {
				n := decode[wire.AllocateResult](t, r).Nonce
				if seen[n] {
					t.Errorf("nonce %d has two holders", n)
				}
				seen[n] = true
			} else if r.reason() != "not_owner" {
				t.Errorf("%v", r.Error)
			}
		}
	}
	if len(seen) != 22 {
		t.Errorf("%d nonces were handed out, want 22", len(seen))
	}
	consistent(t, db)
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
			db := database(t)
			first := launch(t, "--store="+db, "--node-id=same", "--lease-ttl="+tt.ttl)
			toFirst := first.connect()
			held := toFirst.allocate(account, "")

			second := launch(t, "--store="+db, "--node-id=same", "--lease-ttl="+tt.ttl)
			taken := second.connect().allocate(account, "") // at once, without not_owner
			if taken.Nonce != held.Nonce+1 || taken.FencingToken <= held.FencingToken {
				t.Fatalf("the first had %+v, the second %+v", held, taken)
			}
			before := everything(t, db)
			if tt.touch {
				toFirst.want("fenced", wire.MethodAllocate, allocation(account, ""))
			}
			_ = toFirst.ws.Close() // it need not wait for this client
			if code := first.exit(); code != exitFailure {
				t.Errorf("the first ended with %d", code)
			}
			lines := strings.Split(strings.TrimSpace(first.log.String()), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "gateway: ") || !strings.Contains(last, "later start of the same node id") {
				t.Errorf("the first ended with the words %q", last)
			}
			if after := everything(t, db); after != before {
				t.Errorf("the first changed something\nbefore\n%s\nafter\n%s", before, after)
			}
			if live := query(t, db, `SELECT live, incarnation FROM nodes`); live != "(t,2)" {
				t.Errorf("the registry shows %s", live)
			}
		})
	}
}
