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

// late is a commit whose connection broke before the store saw it.
type late struct{ memstore.Call }

// breakLate makes the next commit about signer end as unknown and keeps it, to
// arrive later.
func (d *disk) breakLate() *late {
	l := &late{}
	d.onBefore(once(memstore.OpCommit, signer, func(c memstore.Call) error {
		l.Call = c
		return errCut
	}))
	return l
}

// arrive runs the late commit and reports whether the store took it.
func (l *late) arrive(t *testing.T, d *disk) bool {
	t.Helper()
	res, err := d.Commit(t.Context(), l.Holder, l.Writes)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(res.Results, nonce.Applied)
}

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

func TestACommitWhoseReplyWasLostIsAnsweredAsWhatItDid(t *testing.T) {
	eachUnknown(t, func(t *testing.T, n *node, i int) {
		n.disk.onAfter(once(memstore.OpCommit, signer, cut))
		before := n.disk.summary(t, signer)
		if got := n.run(unknowns[i].op); got != unknowns[i].want {
			t.Errorf("got %q, want %q", got, unknowns[i].want)
		}
		after := n.disk.summary(t, signer)
		if after.Version != before.Version+1 {
			t.Errorf("got version %d, want %d: it was done twice", after.Version, before.Version+1)
		}
		if after.Lease.Token <= before.Lease.Token {
			t.Errorf("got token %d, want one above %d", after.Lease.Token, before.Lease.Token)
		}
		if got := n.events.String(); got != unknowns[i].event {
			t.Errorf("got events %q, want %q", got, unknowns[i].event)
		}
		if got := n.disk.rows(t, signer); got != unknowns[i].rows {
			t.Errorf("got rows %s, want %s", got, unknowns[i].rows)
		}
	})
}

func TestACommitThatWasLostIsRunAgainAndRefusedWhenItArrivesAfterAll(t *testing.T) {
	eachUnknown(t, func(t *testing.T, n *node, i int) {
		l := n.disk.breakLate()
		if got := n.run(unknowns[i].op); got != unknowns[i].want {
			t.Errorf("got %q, want %q", got, unknowns[i].want)
		}
		if l.arrive(t, n.disk) {
			t.Error("the store took the late commit")
		}
		if got := n.events.String(); got != unknowns[i].event {
			t.Errorf("got events %q, want %q", got, unknowns[i].event)
		}
		if got := n.disk.rows(t, signer); got != unknowns[i].rows {
			t.Errorf("got rows %s, want %s", got, unknowns[i].rows)
		}
	})
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

func TestASignerIsAcquiredAnewAfterAnUnknownCommitThatCouldNotBeSettled(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.want("allocate -> 0#1")
	l := n.disk.breakLate()
	n.disk.onAfter(once(memstore.OpAcquire, signer, cut))
	n.want("allocate -> unknown")
	if l.arrive(t, n.disk) {
		t.Fatal("the acquire that broke had taken effect: it must have fenced the late commit")
	}
	n.want("allocate -> 1#1")

	l = n.disk.breakLate()
	breakCommit := n.disk.before
	n.disk.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpAcquire {
			n.disk.onBefore(nil)
			return errCut
		}
		return breakCommit(c)
	})
	n.want("allocate id=x -> unknown")
	if !l.arrive(t, n.disk) {
		t.Fatal("nothing has fenced the late commit, it must succeed")
	}
	n.want("allocate id=x -> 2#1", "allocate -> 3#1")
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

// TestAnAnswerThatTheRowCannotTellIsUnknown: a basic node changes the row after the broken
// commit took effect, or in its place. Then the version tells that it did not.
func TestAnAnswerThatTheRowCannotTellIsUnknown(t *testing.T) {
	for _, test := range []struct {
		name, before, op string
		happened         bool
		meanwhile, want  string
		rows             string
	}{
		{"AnAllocateWhoseNonceWasMarkedMeanwhile", "", "allocate", true,
			"release 0#1 -> RELEASED", "unknown", "0#1=RELEASED"},
		{"AnAllocateWhoseNonceAnotherTookFirst", "", "allocate", false,
			"allocate -> 0#1", "1#1", "0#1=HELD 1#1=HELD"},
		{"AnAllocateThatDidNotHappenWhileOthersDid", "allocate -> 0#1\nallocate -> 1#1\nrelease 0#1 -> RELEASED", "allocate", false,
			"used 1#1 hash=7 -> CONSUMED", "0#2", "0#2=HELD 1#1=CONSUMED/7"},
		{"AnAllocateWithIdThatHappenedAndRuns", "", "allocate id=a", true,
			"allocate -> 1#1", "0#1", "0#1=HELD 1#1=HELD"},
		{"AnAllocateWithIdThatHappenedAndEnded", "", "allocate id=a", true,
			"used 0#1 hash=7 -> CONSUMED", "conflict 0#1=CONSUMED", "0#1=CONSUMED/7"},
		{"AnAllocateWithIdThatABasicNodeAnswered", "", "allocate id=a", false,
			"allocate id=a -> 0#1", "0#1", "0#1=HELD"},
		{"AReleaseAfterWhichTheNonceWasHandedOut", "allocate -> 0#1", "release 0#1", true,
			"allocate -> 0#2", "unknown", "0#2=HELD"},
		{"AMarkUsedBehindAnotherHash", "allocate -> 0#1", "used 0#1 hash=7", false,
			"used 0#1 hash=8 -> CONSUMED", "CONSUMED", "0#1=CONSUMED/7,8"},
		{"AMarkUsedThatAReleaseForestalled", "allocate -> 0#1", "used 0#1 hash=7", false,
			"release 0#1 -> RELEASED", "CONSUMED", "0#1=CONSUMED/7"},
		{"AReleaseThatAMarkUsedForestalled", "allocate -> 0#1", "release 0#1", false,
			"used 0#1 hash=8 -> CONSUMED", "conflict 0#1=CONSUMED/8", "0#1=CONSUMED/8"},
		{"ARepairAfterWhichTheNonceWasMarked", "allocate -> 0#1", "repair 0", true,
			"used 0#2 hash=7 -> CONSUMED", "unknown", "0#2=CONSUMED/7"},
		{"ARepairThatAMarkForestalled", "allocate -> 0#1", "repair 0", false,
			"used 0#1 hash=7 -> CONSUMED", "0#2 was #1 3/ 7", "0#2=HELD/7/repair"},
		{"AnExtensionAfterWhichTheHoldEnded", "allocate -> 0#1", "extend 0#1", true,
			"release 0#1 -> RELEASED", "unknown", "0#1=RELEASED"},
		{"AnExtensionThatDidNotHappen", "allocate -> 0#1", "extend 0#1 hold=5m", false,
			"allocate -> 1#1", "HELD", "0#1=HELD 1#1=HELD"},
		{"AHashThatAReleaseForestalled", "allocate -> 0#1", "signed 0#1 hash=7", false,
			"release 0#1 -> RELEASED", "conflict 0#1=RELEASED", "0#1=RELEASED"},
		{"ASendInPassingThatAnAllocationForestalled", "", "send 0 hash=7 take", false,
			"allocate -> 0#1", "HELD #1 7", "0#1=HELD/7/forwarded"},
		{"AFloorThatWasRaisedHigherMeanwhile", "allocate -> 0#1", "floor 3", true,
			"floor 5 -> floor 5 next 5", "unknown", "0#1=HELD"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDisk()
			n, basic := start(t, d, "a"), start(t, d, "b", basicMode)
			ops, want := lines(test.before)
			if got := serially(n, ops, func() {}); !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			when := d.onBefore
			if test.happened {
				when = d.onAfter
			}
			when(once(memstore.OpCommit, signer, func(memstore.Call) error {
				basic.want(test.meanwhile)
				return errCut
			}))
			n.want(test.op + " -> " + test.want)
			if got := d.rows(t, signer); got != test.rows {
				t.Errorf("got rows %s, want %s", got, test.rows)
			}
		})
	}
}

// TestAMarkThatHappenedIsNotRefusedForWhatCameAfterIt: running it again would meet the next
// holder.
func TestAMarkThatHappenedIsNotRefusedForWhatCameAfterIt(t *testing.T) {
	d := newDisk()
	n, basic := start(t, d, "a"), start(t, d, "b", basicMode)
	n.want("allocate -> 0#1")
	d.onAfter(once(memstore.OpCommit, signer, func(memstore.Call) error {
		d.onAfter(once(memstore.OpAcquire, signer, func(memstore.Call) error {
			basic.want("allocate -> 0#2")
			return nil
		}))
		return errCut
	}))
	n.want("release 0#1 -> unknown", "allocate -> 1#1")
}

func TestAnotherNodeTookOverAfterAnUnknownCommit(t *testing.T) {
	for _, happened := range []bool{true, false} {
		eachUnknown(t, func(t *testing.T, n *node, i int) {
			u := unknowns[i]
			other := start(t, n.disk, "b")
			takeOver := func(memstore.Call) error {
				n.disk.takeAway(signer)
				other.want("used 99#99 -> not_found") // acquires, and changes nothing
				return errCut
			}
			l := (*late)(nil)
			if happened {
				n.disk.onAfter(once(memstore.OpCommit, signer, takeOver))
			} else {
				l = n.disk.breakLate()
				broken := n.disk.before
				n.disk.onBefore(func(c memstore.Call) error {
					err := broken(c)
					if err != nil {
						n.disk.onBefore(nil)
						return takeOver(c)
					}
					return err
				})
			}
			want := u.want
			if !happened {
				want = "fenced"
			}
			if got := n.run(u.op); got != want {
				t.Errorf("happened %v: got %q, want %q", happened, got, want)
			}
			if l != nil && l.arrive(t, n.disk) {
				t.Error("the store took the late commit")
			}
			if got := n.disk.rows(t, signer); happened && got != u.rows {
				t.Errorf("got rows %s, want %s", got, u.rows)
			}
			if got := other.run(u.op); u.name == "AllocateWithId" && got != u.want {
				t.Errorf("the other node: got %q, want %q", got, u.want)
			}
			n.want("used 99#99 -> not_owner b ws://b")
		})
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
