package service_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

var errLocked = &nonce.StoreError{Outcome: nonce.Aborted, Err: errors.New("lock timeout")}

// others are two signers of other shards than signer's, and than plug's.
func (d *disk) others() (x, y string) {
	var names []string
	for shard := range shards {
		if shard != nonce.ShardOf(signer, shards) && shard != nonce.ShardOf("plug", shards) {
			names = append(names, d.nameIn(shard))
		}
	}
	return names[0], names[1]
}

// abortTogether aborts each acquire of more than one shard, and the first of signer's
// shard alone.
func abortTogether() func(memstore.Call) error {
	alone := once(memstore.OpAcquire, signer, func(memstore.Call) error { return errLocked })
	return func(c memstore.Call) error {
		if c.Op == memstore.OpAcquire && len(c.Shards) > 1 {
			return errLocked
		}
		return alone(c)
	}
}

func TestAnAbortedAcquireIsRunAgainShardByShardAndWaitsForALockedRow(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	x, y := d.others()
	for _, name := range []string{x, y, signer} {
		d.takeAway(name)
		n.run("used 99#99 signer=" + name)
	}
	d.onBefore(abortTogether())
	got := n.batch(allocate(x), allocate(signer), allocate(y), parse(t, "used 0#1"))
	if want := []string{"0#1", "0#1", "0#1", "CONSUMED"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnUnknownCommitOfManySignersIsSettledForEach(t *testing.T) {
	for name, happened := range map[string]bool{"happened": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			n := start(t, d, "a")
			x, y := d.others()
			for _, s := range []string{x, signer, y} {
				n.do(allocate(s))
			}
			lose := d.onBefore
			if happened {
				lose = d.onAfter
			}
			lose(once(memstore.OpCommit, signer, func(memstore.Call) error {
				d.onBefore(abortTogether()) // and signer's alone: its row is locked
				return errCut
			}))
			got := n.batch(allocate(x), allocate(signer), allocate(y), parse(t, "list"))
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

func TestAnOpThatIsAbortedAllAloneIsTriedAgainAndRefusedWhenThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a")
		n.disk.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error { return errLocked }))
		n.want("allocate -> 0#1")
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpCommit {
				return errLocked
			}
			return nil
		})
		n.want("allocate -> none")
		n.disk.onBefore(nil)
		n.want("allocate -> 1#1")
	})
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
	n := start(t, newDisk(), "a", func(c *service.Config) { c.LockWait, c.LockRetry = 200*time.Millisecond, time.Millisecond })
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
	n := start(t, newDisk(), "a", func(c *service.Config) { c.LockWait = time.Hour })
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

// TestOnlyTheOneAtFaultIsRefused: each commit that has a certain hash is aborted.
func TestOnlyTheOneAtFaultIsRefused(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1")
	d.onBefore(func(c memstore.Call) error {
		for _, ch := range c.Writes {
			for _, past := range ch.History {
				if c.Op == memstore.OpCommit && ch.Name == signer && past.TxHash[31] == 66 {
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

func TestAnAbortedExpiryDoesNotStopItsSigner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second))
		n.want("allocate hold=5s -> 0#1", "allocate -> 1#1")
		n.disk.onBefore(func(c memstore.Call) error {
			if slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.NotBefore != 0 }) {
				return &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}
			}
			return nil
		})
		time.Sleep(7 * time.Second)
		n.want("allocate -> 2#1", "used 1#1 -> CONSUMED", "allocate -> 3#1")
		n.disk.onBefore(nil)
		time.Sleep(2 * time.Second)
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
		slot, _ := n.Reserve(name, 0)
		op := allocate(name)
		op.Completion = w
		n.Submit(slot, op)
	}
	open()
	plug[0].wait()
	w.done.Wait()
	if want := []int{3}; !slices.Equal(w.wakes, want) {
		t.Errorf("woken for %v answers, want %v", w.wakes, want)
	}
}

func TestAStoreThatRefusesEveryTransactionOfModeBasicIsSaidToRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", basicMode)
		refusal := errors.New("relation does not exist")
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpLocked {
				return &nonce.StoreError{Outcome: nonce.Aborted, Err: refusal}
			}
			return nil
		})
		err := n.Do(t.Context(), allocate(signer))
		if e, ok := errors.AsType[*nonce.UnavailableError](err); !ok || e.Outcome != nonce.Aborted || !errors.Is(err, refusal) {
			t.Errorf("got %v, want that the store refused it", err)
		}
	})
}
