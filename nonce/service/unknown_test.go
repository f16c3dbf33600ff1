package service_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

// unknowns are ops whose commit breaks, after some that went well.
var unknowns = []struct {
	name, before, op, want string
	// rows, and event, are what there is once it happened.
	rows, event string
}{
	{"AllocateWithoutId", "", "allocate", "0#1", "0#1=HELD", "allocated 0#1"},
	{"AllocateOfAReleasedOne", "allocate -> 0#1\nrelease 0#1 -> RELEASED", "allocate count=2", "0#2 1#1",
		"0#2=HELD 1#1=HELD", "allocated 0#2, allocated 1#1"},
	{"AllocateWithId", "", "allocate id=a count=2", "0#1 1#1", "0#1=HELD 1#1=HELD", "allocated 0#1, allocated 1#1"},
	{"MarkUsed", "allocate -> 0#1", "used 0#1 hash=7", "CONSUMED", "0#1=CONSUMED/7", "used 0#1"},
	{"MarkUsedOfAReleasedOne", "allocate -> 0#1\nrelease 0#1 -> RELEASED", "used 0#1 hash=7", "CONSUMED",
		"0#1=CONSUMED/7", "used 0#1"},
	{"MarkRecyclable", "allocate -> 0#1", "release 0#1", "RELEASED", "0#1=RELEASED", "released 0#1"},
	{"MarkRecyclableBelowTheFloor", "allocate -> 0#1\nfloor 1 -> floor 1 next 1", "release 0#1", "CONSUMED",
		"0#1=CONSUMED/below_floor", "released 0#1"},
	{"MarkUsedWithoutAHash", "allocate -> 0#1", "used 0#1 hash=0", "CONSUMED", "0#1=CONSUMED", "used 0#1"},
	{"Replacement", "allocate -> 0#1\nused 0#1 hash=7 -> CONSUMED", "used 0#1 hash=8", "CONSUMED", "0#1=CONSUMED/8,7", "replaced 0#1"},
	{"MarkSigned", "allocate -> 0#1", "signed 0#1 hash=7", "HELD #1 7", "0#1=HELD/7", "signed 0#1"},
	{"Send", "allocate -> 0#1", "send 0 hash=7", "HELD #1 7", "0#1=HELD/7/forwarded", "signed 0#1"},
	{"SendInPassing", "", "send 0 hash=7 take", "HELD #1 7", "0#1=HELD/7/forwarded", "allocated 0#1, signed 0#1"},
	{"SendOfAReleasedOne", "allocate -> 0#1\nrelease 0#1 -> RELEASED", "send 0 hash=7 take", "HELD #2 7", "0#2=HELD/7/forwarded", "allocated 0#2, signed 0#2"},
	{"Extend", "allocate -> 0#1", "extend 0#1", "HELD", "0#1=HELD", "extended 0#1"},
	{"RepairOfAHold", "allocate -> 0#1", "repair 0 id=r", "0#2", "0#2=HELD/repair", "allocated 0#2"},
	{"RepairOfAUsedOne", "allocate -> 0#1\nused 0#1 hash=7 -> CONSUMED", "repair 0 id=r", "0#2 7", "0#2=HELD/7/repair", "allocated 0#2"},
	{"SetFloor", "allocate -> 0#1\nrelease 0#1 -> RELEASED", "floor 4", "floor 4 next 4", "0#1=CONSUMED/below_floor", "floor 4#0"},
}

// eachUnknown runs test for each of them, with the ops before it done.
func eachUnknown(t *testing.T, test func(t *testing.T, n *node, i int), change ...func(*service.Config)) {
	for i, u := range unknowns {
		t.Run(u.name, func(t *testing.T) {
			n := start(t, newDisk(), "a", change...)
			ops, want := lines(u.before)
			if got := serially(n, ops, func() {}); !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			n.events.all = nil
			test(t, n, i)
		})
	}
}

// storeAway makes the next commit about signer break, at when, and all that
// follows fail as not sent, until back is called.
func (d *disk) storeAway(when func(func(memstore.Call) error)) (back func()) {
	notSent := &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
	when(once(memstore.OpCommit, signer, func(memstore.Call) error {
		d.onBefore(func(memstore.Call) error { return notSent })
		return errCut
	}))
	return func() { d.onBefore(nil) }
}

func TestWhileNobodyCanTellTheOutcomeIsUnknownAndARepeatSettlesIt(t *testing.T) {
	for _, happened := range []bool{true, false} {
		eachUnknown(t, func(t *testing.T, n *node, i int) {
			u := unknowns[i]
			when := n.disk.onBefore
			if happened {
				when = n.disk.onAfter
			}
			back := n.disk.storeAway(when)
			got := n.batch(parse(t, u.op), parse(t, "used 9#9"), parse(t, "status"))
			if want := []string{"unknown", "none", "none"}; !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			back()
			if u.name == "AllocateWithoutId" || u.name == "AllocateOfAReleasedOne" {
				return // nothing can find that answer again
			}
			if got, _, _ := strings.Cut(n.run(u.op), " reissued"); got != u.want { // a repair tells that to those who ask again
				t.Errorf("asked again: got %q, want %q", got, u.want)
			}
			want := u.rows
			if happened { // nobody knows whether who recorded it gave it to a node
				want = strings.ReplaceAll(want, nonce.ReasonForwarded, nonce.ReasonResent)
			}
			if got := n.disk.rows(t, signer); got != want {
				t.Errorf("got rows %s, want %s", got, want)
			}
		})
	}
}

// TestWhatMayHaveHappenedIsNeverReportedAsNone: the commit took effect, its reply was lost,
// and somebody else wrote behind it, so that only running the op again tells. Then the store
// goes away, or the row stays locked.
func TestWhatMayHaveHappenedIsNeverReportedAsNone(t *testing.T) {
	notSent := &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
	for _, op := range []string{"allocate id=a", "repair 0 id=r"} {
		for name, then := range map[string]func(*disk, *node){
			"away": func(d *disk, _ *node) {
				d.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error { return notSent }))
			},
			"aborted": func(d *disk, _ *node) {
				d.onBefore(func(c memstore.Call) error {
					if touches(c, memstore.OpCommit, signer) {
						return errLocked
					}
					return nil
				})
			},
			"locked":   func(d *disk, _ *node) { d.onLock(func(string) bool { return true }) },
			"halted":   func(_ *disk, n *node) { n.Halt(errCut) },
			"stopping": func(d *disk, n *node) { d.onLock(func(string) bool { go n.Stop(); return true }) },
		} {
			t.Run(op+"/"+name, func(t *testing.T) {
				d := newDisk()
				n := start(t, d, "a", func(c *service.Config) { c.LockWait = 20 * time.Millisecond })
				basic := start(t, d, "b", basicMode)
				n.want("allocate -> 0#1")
				d.onAfter(once(memstore.OpCommit, signer, func(memstore.Call) error {
					basic.run("allocate")
					then(d, n)
					return errCut
				}))
				n.want(op + " -> unknown")
			})
		}
	}
}

func TestInModeBasicAnUnknownOutcomeStaysUnknownUntilItIsAskedAgain(t *testing.T) {
	for _, happened := range []bool{true, false} {
		eachUnknown(t, func(t *testing.T, n *node, i int) {
			u := unknowns[i]
			when, want := n.disk.onBefore, "none"
			if happened {
				when, want = n.disk.onAfter, "unknown"
			}
			when(once(memstore.OpLocked, signer, cut))
			if got := n.run(u.op); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if u.name == "AllocateWithoutId" || u.name == "AllocateOfAReleasedOne" {
				return
			}
			if got, _, _ := strings.Cut(n.run(u.op), " reissued"); got != u.want { // a repair tells that to those who ask again
				t.Errorf("asked again: got %q, want %q", got, u.want)
			}
		}, basicMode)
	}
}

// TestACommitIsSettledAlsoByANodeThatMayNotKeepItsShard: it has got a log meanwhile, and this
// node has no Redis. It gives the shard back, and the row tells what became of the commit.
func TestACommitIsSettledAlsoByANodeThatMayNotKeepItsShard(t *testing.T) {
	n := start(t, newDisk(), "a")
	shard := nonce.ShardOf(signer, shards)
	n.disk.onAfter(once(memstore.OpCommit, signer, func(memstore.Call) error {
		n.disk.onAfter(nil)
		n.disk.takeAway(signer)
		b := n.disk.register(t, "b")
		if _, err := n.disk.Renew(t.Context(), b, time.Minute); err != nil {
			t.Fatal(err)
		}
		rows, err := n.disk.Acquire(t.Context(), b, []int{shard})
		if err != nil || !rows[0].Taken {
			t.Fatal(rows, err)
		}
		term := rows[0].Term()
		if on, err := n.disk.TurnOn(t.Context(), b, term, "server", nonce.Grant{For: time.Minute, LongestHold: time.Minute}); err != nil || !on {
			t.Fatal(on, err)
		}
		term.Performance = true
		if given, err := n.disk.Release(t.Context(), b, []lease.ShardTerm{term}); err != nil || given != 1 {
			t.Fatal(given, err)
		}
		return errCut
	}))
	n.want("allocate -> 0#1", "used 0#1 -> none")
}
