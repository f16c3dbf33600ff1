package nonce_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

var errLocked = &nonce.StoreError{Outcome: nonce.Aborted, Err: errors.New("lock timeout")}

// abortTogether aborts each op that is about more than one signer, and the first
// about signer alone.
func abortTogether(op memstore.Op) func(memstore.Call) error {
	alone := once(op, signer, func(memstore.Call) error { return errLocked })
	return func(c memstore.Call) error {
		if c.Op == op && len(c.Needs)+len(c.Changes) > 1 {
			return errLocked
		}
		return alone(c)
	}
}

func TestAnAbortedAcquireIsRunAgainSignerBySignerAndWaitsForALockedRow(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.disk.onBefore(abortTogether(memstore.OpAcquire))
	got := n.batch(allocate("x"), allocate(signer), allocate("y"), parse(t, "used 0#1"))
	if want := []string{"0#1", "0#1", "0#1", "CONSUMED"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnUnknownCommitOfManySignersIsSettledForEach(t *testing.T) {
	for name, happened := range map[string]bool{"happened": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			n := start(t, d, "a")
			for _, s := range []string{"x", signer, "y"} {
				n.do(allocate(s))
			}
			lose := d.onBefore
			if happened {
				lose = d.onAfter
			}
			lose(once(memstore.OpCommit, signer, func(memstore.Call) error {
				abort := abortTogether(memstore.OpAcquire) // and signer alone: its row is locked
				d.onBefore(abort)
				return errCut
			}))
			got := n.batch(allocate("x"), allocate(signer), allocate("y"), parse(t, "list"))
			rows := "0#1=HELD"
			if happened {
				rows = "0#1=HELD 1#1=HELD"
			}
			if want := []string{"1#1", "unknown", "1#1", rows}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestOpsRunOneByOneWaitInOrderForALockedRow(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1")
	d.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error {
		var locked sync.Once
		d.onLock(func(name string) (yes bool) { locked.Do(func() { yes = name == signer }); return yes })
		return errLocked
	}))
	got := n.batch(parse(t, "release 0#1"), parse(t, "allocate"), parse(t, "used 0#2"), parse(t, "list"))
	if want := []string{"RELEASED", "0#2", "CONSUMED", "0#2=CONSUMED/1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnOpThatIsAbortedAllAloneIsRefusedAndNothingHappened(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.disk.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error { return errLocked }))
	n.want("allocate -> none", "allocate -> 0#1")
}

func TestARowLockedByAnOutsiderIsRetriedApart(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.want("allocate -> 0#1")
	var locked atomic.Bool
	locked.Store(true)
	n.disk.onLock(func(name string) bool { return name == signer && locked.Load() })
	ps := n.send(allocate(signer), parse(t, "used 0#1"), parse(t, "status"))
	if got := n.do(allocate("other")); got != "0#1" {
		t.Errorf("another signer of the shard: got %q", got)
	}
	ps = append(ps, n.send(allocate(signer))...)
	locked.Store(false)
	want := []string{"1#1", "CONSUMED", "next 2 floor 0 held 1 released 0 consumed 1", "2#1"}
	if got := results(ps); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestARowThatStaysLockedIsWaitedForAsLongAsConfigured: many more retries than a
// group has rounds fit into the wait.
func TestARowThatStaysLockedIsWaitedForAsLongAsConfigured(t *testing.T) {
	n := start(t, newDisk(), "a", func(c *nonce.Config) { c.LockWait, c.LockRetry = 200*time.Millisecond, time.Millisecond })
	n.want("allocate -> 0#1")
	n.disk.onLock(func(name string) bool { return name == signer })
	began := time.Now()
	if got := n.run("allocate"); got != "none" {
		t.Errorf("got %q, want none", got)
	}
	if waited := time.Since(began); waited < 200*time.Millisecond {
		t.Errorf("refused after %v, want 200ms", waited)
	}
	n.disk.onLock(nil)
	n.want("allocate -> 1#1")
}

func TestStopRefusesWhatStaysLocked(t *testing.T) {
	n := start(t, newDisk(), "a", func(c *nonce.Config) { c.LockWait = time.Hour })
	n.want("allocate -> 0#1")
	tried := make(chan struct{}, 1)
	n.disk.onLock(func(name string) bool {
		select {
		case tried <- struct{}{}:
		default:
		}
		return name == signer
	})
	ps := n.send(allocate(signer), parse(t, "list"))
	<-tried
	n.Stop()
	if got, want := results(ps), []string{"draining", "0#1=HELD"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhileNobodyStopsWritingBesideItASignerIsToldBusy(t *testing.T) {
	d := newDisk()
	n, basic := start(t, d, "a"), start(t, d, "b", basicMode)
	n.want("allocate -> 0#1")
	d.onBefore(func(c memstore.Call) error {
		if touches(c, memstore.OpCommit, signer) {
			basic.run("allocate")
		}
		return nil
	})
	n.want("allocate -> busy")
	d.onBefore(nil)
	if s := d.summary(t, signer); s.Held != s.Next || s.Next < 10 {
		t.Errorf("got next %d, held %d", s.Next, s.Held)
	}
}

// TestOnlyTheOneAtFaultIsRefused: somebody else inserted nonce 1 behind the back
// of the rules, and each commit that would insert it is aborted.
func TestOnlyTheOneAtFaultIsRefused(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1")
	d.onBefore(func(c memstore.Call) error {
		for _, ch := range c.Changes {
			for _, rc := range ch.Rows {
				if c.Op == memstore.OpCommit && ch.Signer == signer && rc.TxHash[31] == 66 {
					return &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}
				}
			}
		}
		return nil
	})
	got := n.batch(allocate("other"), parse(t, "allocate id=a"), parse(t, "used 0#1 hash=66"), parse(t, "allocate id=a"),
		parse(t, "status"), allocate(signer), allocate("other"))
	want := []string{"0#1", "1#1", "internal", "1#1", "next 2 floor 0 held 2 released 0 consumed 0", "2#1", "1#1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n.fig.get(&n.fig.invariant) == 0 {
		t.Error("no alarm")
	}
	d.onBefore(nil)
	n.want("used 0#1 hash=66 -> CONSUMED")
}

func TestAnAbortedSweepDoesNotStopItsSigner(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s -> 0#1", "allocate -> 1#1")
		time.Sleep(6 * time.Second)
		n.disk.onBefore(func(c memstore.Call) error {
			for _, ch := range c.Changes {
				for _, rc := range ch.Rows {
					if rc.Reason == nonce.ReasonExpired {
						return &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}
					}
				}
			}
			return nil
		})
		if n.cfg.Mode == nonce.WorkerQueue {
			n.want("allocate -> 2#1", "used 1#1 -> CONSUMED", "allocate -> 3#1")
		}
		n.disk.onBefore(nil)
		n.want("allocate -> 0#2")
	})
}

// waking is a connection that counts how often it is woken, and for how many
// answers.
type waking struct {
	answers int
	wakes   []int
	done    sync.WaitGroup
}

func (w *waking) Gone() bool { return false }
func (w *waking) Done(*nonce.Op) nonce.Waker {
	w.answers++
	return w
}
func (w *waking) Wake() {
	w.wakes = append(w.wakes, w.answers)
	w.done.Add(-w.answers)
	w.answers = 0
}

func TestAConnectionIsWokenOnceForAllItsAnswersOfACommit(t *testing.T) {
	n := start(t, newDisk(), "a")
	began, open := n.disk.holdCommit("plug")
	plug := n.send(allocate("plug"))
	<-began
	w := &waking{}
	w.done.Add(3)
	for _, name := range []string{"x", "y", "x"} {
		place, _ := n.Reserve(name, 0)
		op := allocate(name)
		op.Completion = w
		n.Submit(place, op)
	}
	open()
	plug[0].wait()
	w.done.Wait()
	if want := []int{3}; !slices.Equal(w.wakes, want) {
		t.Errorf("woken for %v answers, want %v", w.wakes, want)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		&nonce.NotOwnerError{Node: "b"}:                                                                              "node b owns the signer",
		&nonce.UnavailableError{Outcome: nonce.Unknown, Err: errCut}:                                                 "ask again with the same request id",
		&nonce.UnavailableError{Outcome: nonce.Unknown, Err: nonce.ErrLost}:                                          "did not confirm the write",
		&nonce.UnavailableError{Outcome: nonce.NotSent, Err: errCut}:                                                 "the store is out of reach",
		&nonce.UnavailableError{Outcome: nonce.NotSent, Err: &nonce.StoreError{Outcome: nonce.Aborted, Err: errCut}}: "the store refused it",
		&nonce.UnavailableError{Outcome: nonce.NotSent, Err: lease.ErrWentBack}:                                      "the store went back",
		&nonce.ConflictError{Sentence: "the nonce is consumed"}:                                                      "the nonce is consumed",
		&nonce.HoldLimitError{Limit: 7}:                                                                              "7 open holds",
		errCut:                                                                                                       "store (unknown): the connection broke",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to say %q", err, want)
		}
	}
	if got := nonce.OutcomeOf(errors.New("who knows")); got != nonce.Unknown {
		t.Errorf("an error that does not say: got %v, want unknown", got)
	}
}
