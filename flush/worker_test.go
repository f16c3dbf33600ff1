package flush

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

func TestEventsAreAppliedInOrderMergedAndThenAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1, 2, 3), newDesk()
		for v := range int64(50) {
			q.push(0, event(1, v, fresh(v)), event(2, v, fresh(v)))
			q.push(1, event(3, v, fresh(v)))
		}
		start(t, q, l, d, Config{Shards: 4, Lanes: 4})
		time.Sleep(time.Second)
		synctest.Wait()
		for id := range int64(3) {
			if got := l.at(id + 1); got != 50 {
				t.Errorf("signer %d is at version %d, want 50", id+1, got)
			}
		}
		if alive, dead := q.left(); alive+dead != 0 {
			t.Errorf("%d entries and %d dead letters are left", alive, dead)
		}
		if n := l.transactions(); n != 2 {
			t.Errorf("%d transactions, want one a lane", n)
		}
		if d.flushed["s1"] != 50 || d.flushed["s3"] != 50 {
			t.Errorf("told %v, want each signer's last version", d.flushed)
		}
	})
}

func TestNothingIsAcknowledgedBeforeItsCommit(t *testing.T) {
	for _, outcome := range []nonce.Outcome{nonce.NotSent, nonce.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			q, l, d := newStreams(), newRows(1), newDesk()
			q.push(0, event(1, 0, fresh(0)), event(1, 1, used(0)))
			l.fail = func([]nonce.FlushEvent) (error, bool) {
				return &nonce.StoreError{Outcome: outcome, Err: errors.New("away")}, false
			}
			start(t, q, l, d, Config{Shards: 1})
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if alive, dead := q.left(); alive != 2 || dead != 0 || len(q.forgotten) != 0 || len(d.flushed) != 0 {
				t.Errorf("%v: %d entries, %d dead letters are left, %v forgotten, told of %v", outcome, alive, dead, q.forgotten, d.flushed)
			}
			if n := l.transactions(); n > 40 {
				t.Errorf("%v: %d tries in 30 s, want fewer and fewer", outcome, n)
			}
			l.with(func() { l.fail = nil })
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if alive, _ := q.left(); alive != 0 || l.at(1) != 2 || !slices.Equal(q.forgotten, []int64{0}) {
				t.Errorf("%v: afterwards %d entries are left, version %d, forgotten %v", outcome, alive, l.at(1), q.forgotten)
			}
		})
	}
}

func TestACommitThatWasNotConfirmedIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		q.push(0, event(1, 0, fresh(0)))
		first := true
		l.fail = func([]nonce.FlushEvent) (error, bool) {
			if !first {
				return nil, false
			}
			first = false
			return &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("broken")}, true
		}
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(time.Second)
		synctest.Wait()
		if alive, _ := q.left(); alive != 0 || d.settled[nonce.FlushAlready] != 1 || d.flushed["s1"] != 1 {
			t.Errorf("%d entries are left, settled %v, told %v; want that it was there already", alive, d.settled, d.flushed)
		}
	})
}

func TestWhatCannotBeAcknowledgedIsNotAppliedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		q.set(nil, errors.New("Redis is away"))
		q.push(0, event(1, 0, fresh(0)))
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(10 * time.Second)
		q.set(nil, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if alive, _ := q.left(); alive != 0 || d.settled[nonce.FlushApplied] != 1 || d.retried(RetryRedis) < 3 {
			t.Errorf("%d entries are left, settled %v, retried %v", alive, d.settled, d.retries)
		}
	})
}

func TestAServerThatWasNotAcceptedIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		q.push(0, event(1, 0, fresh(0)))
		q.set(fmt.Errorf("run id: %w", redisstore.ErrIdentity), nil)
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := l.transactions(); n != 0 || d.retried(RetryLost) == 0 || d.retried(RetryRedis) != 0 {
			t.Errorf("%d transactions, retried %v; want none", n, d.retries)
		}
	})
}

func TestOnlyTheEventAtFaultBecomesADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := []int64{1, 2, 3, 4, 5, 6, 7}
		q, l, d := newStreams(), newRows(ids...), newDesk()
		l.signers[4].rows[1] = used(1) // which contradicts what comes
		for v := range int64(3) {
			for _, id := range ids {
				q.push(0, event(id, v, fresh(v)))
			}
		}
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for _, id := range ids {
			want := int64(3)
			if id == 4 {
				want = 1 // the event before the one at fault
			}
			if got := l.at(id); got != want {
				t.Errorf("signer %d is at version %d, want %d", id, got, want)
			}
		}
		if alive, dead := q.left(); alive != 0 || dead != 2 || d.buried != 2 {
			t.Errorf("%d entries and %d dead letters are left, %d counted; want the event at fault and the one behind it", alive, dead, d.buried)
		}
		if !slices.Contains(d.conflicts, "s4") || slices.Contains(d.conflicts, "s3") {
			t.Errorf("told of %v, want s4 alone", d.conflicts)
		}
	})
}

func TestWhatTheStoreRefusesForAWhileIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1, 2), newDesk()
		q.push(0, event(1, 0, fresh(0)), event(2, 0, fresh(0)))
		l.fail = func([]nonce.FlushEvent) (error, bool) {
			return &nonce.StoreError{Outcome: nonce.Aborted, Err: errors.New("disk full")}, false
		}
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(10 * time.Minute)
		l.with(func() { l.fail = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if alive, dead := q.left(); alive+dead != 0 || l.at(1) != 1 || l.at(2) != 1 {
			t.Errorf("%d entries, %d dead letters are left, versions %d and %d", alive, dead, l.at(1), l.at(2))
		}
	})
}

func TestWhatTheStoreAloneRefusesForEverIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1, 2), newDesk()
		q.push(0, event(1, 0, fresh(0)))
		for v := range int64(40) {
			q.push(0, event(2, v, fresh(v)))
		}
		l.fail = func(events []nonce.FlushEvent) (error, bool) {
			if slices.ContainsFunc(events, func(e nonce.FlushEvent) bool { return e.ID == 1 }) {
				return &nonce.StoreError{Outcome: nonce.Aborted, Err: errors.New("value too long")}, false
			}
			return nil, false
		}
		start(t, q, l, d, Config{Shards: 1, Batch: 2})
		time.Sleep(time.Minute)
		synctest.Wait()
		if alive, dead := q.left(); alive != 0 || dead != 1 || l.at(2) != 40 {
			t.Errorf("%d entries, %d dead letters are left, the other signer is at %d", alive, dead, l.at(2))
		}
	})
}

func TestAGapIsWaitedForAndThenGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		q.push(0, event(1, 1, fresh(1)))
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if _, dead := q.left(); dead != 0 || d.retried(RetryGap) == 0 {
			t.Errorf("%d dead letters before the gap was waited for", dead)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if alive, dead := q.left(); alive != 0 || dead != 1 || !slices.Equal(d.conflicts, []string{"s1"}) {
			t.Errorf("%d entries, %d dead letters, told of %v", alive, dead, d.conflicts)
		}
	})
}

func TestAWakenedShardIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		w := start(t, q, l, d, Config{Shards: 4, Lanes: 4, Poll: time.Hour})
		time.Sleep(24 * time.Hour)
		q.push(3, event(1, 0, fresh(0)))
		w.Wake(2)
		synctest.Wait()
		if l.at(1) != 0 {
			t.Error("another shard was woken, and this one was read")
		}
		w.Wake(3)
		synctest.Wait()
		if l.at(1) != 1 {
			t.Error("it was not read")
		}
	})
}

// TestHandOutsGatherUnlessSomebodyWaits: the transactions of two seconds in which
// something new is there each millisecond.
func TestHandOutsGatherUnlessSomebodyWaits(t *testing.T) {
	for _, c := range []struct {
		hurry, ends bool
		least, most int
	}{
		{least: 6, most: 14},
		{hurry: true, least: 70, most: 130},
		{ends: true, least: 600, most: 1100},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, l, d := newStreams(), newRows(1), newDesk()
			d.hurry.Store(c.hurry)
			w := start(t, q, l, d, Config{Shards: 1})
			v := int64(0)
			for n := range int64(2000) {
				q.push(0, event(1, v, fresh(n)))
				if v++; c.ends {
					q.push(0, event(1, v, used(n)))
					v++
					w.Wake(0)
				}
				time.Sleep(time.Millisecond)
			}
			if n := l.transactions(); n < c.least || n > c.most {
				t.Errorf("hurry %v, marks among them %v: %d transactions, want %d to %d", c.hurry, c.ends, n, c.least, c.most)
			}
		})
	}
}

// TestShardsAreFlushedApart: the hand-outs of several shards, which all begin at the
// same time, do not go on being flushed at the same times.
func TestShardsAreFlushedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 16
		ids := make([]int64, shards)
		for i := range ids {
			ids[i] = int64(i + 1)
		}
		q, l, d := newStreams(), newRows(ids...), newDesk()
		start(t, q, l, d, Config{Shards: shards, Lanes: 1})
		for v := range int64(3000) {
			for s := range int64(shards) {
				q.push(int(s), event(s+1, v, fresh(v)))
			}
			time.Sleep(time.Millisecond)
		}
		// One round for all shards would be 12 transactions.
		if n := l.transactions(); n < 60 {
			t.Errorf("%d transactions in 3 s, want the shards to be flushed one by one", n)
		}
	})
}

func TestWhatWasAppliedInPartIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		for v := range int64(4) {
			q.push(0, event(1, v, fresh(v)))
		}
		e := event(1, 0, fresh(0))
		next, err := l.signers[1].follow(&e)
		if err != nil {
			t.Fatal(err)
		}
		l.signers[1] = next
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(time.Second)
		synctest.Wait()
		if alive, dead := q.left(); alive+dead != 0 || l.at(1) != 4 || d.settled[nonce.FlushAlready] != 1 || d.settled[nonce.FlushApplied] != 3 {
			t.Errorf("%d entries, %d dead letters are left, version %d, settled %v", alive, dead, l.at(1), d.settled)
		}
	})
}

func TestEventsOfALostSignerAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1, 2), newDesk()
		l.signers[1].version, l.signers[2].engine = nonce.NextEpoch(0), nonce.Reliable
		q.push(0, event(1, 0, fresh(0)), event(2, 0, fresh(0)))
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(time.Second)
		synctest.Wait()
		if alive, dead := q.left(); alive+dead != 0 || d.settled[nonce.FlushOver] != 2 || len(d.flushed) != 0 {
			t.Errorf("%d entries, %d dead letters are left, settled %v, told of %v", alive, dead, d.settled, d.flushed)
		}
	})
}

func TestALockedSignerDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1, 2), newDesk()
		l.signers[1].locked = true
		for v := range int64(100) {
			q.push(0, event(1, v, fresh(v)), event(2, v, fresh(v)))
		}
		start(t, q, l, d, Config{Shards: 1})
		time.Sleep(time.Second)
		synctest.Wait()
		if l.at(2) != 100 || l.at(1) != 0 || d.retried(RetryLocked) == 0 {
			t.Errorf("versions %d and %d, retried %d times", l.at(1), l.at(2), d.retried(RetryLocked))
		}
		l.with(func() { l.signers[1].locked = false })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if l.at(1) != 100 {
			t.Errorf("afterwards it is at version %d, want 100", l.at(1))
		}
	})
}

func TestADrainReplaysDeadLettersAndSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1, 2, 3), newDesk()
		d.locks.who[0], d.locks.who[1] = &session{}, &session{} // another node flushes
		w := start(t, q, l, d, Config{Shards: 2})
		q.push(0, event(1, 2, fresh(2)))
		q.dead[0] = []DeadLetter{{ID: "b", Event: Entry{FlushEvent: event(1, 1, fresh(1))}}, {ID: "a", Event: Entry{FlushEvent: event(1, 0, fresh(0))}}}
		q.push(1, event(2, 0, fresh(0)))
		q.dead[1] = []DeadLetter{{ID: "c", Event: Entry{FlushEvent: event(3, 7, fresh(7))}}}
		got, err := w.Drain(t.Context())
		if want := (DrainReport{Settled: 4, Revived: 2, LeftDead: 1}); got != want || err != nil {
			t.Errorf("it did %+v, %v; want %+v", got, err, want)
		}
		if l.at(1) != 3 || l.at(2) != 1 {
			t.Errorf("versions %d and %d, want 3 and 1", l.at(1), l.at(2))
		}
		q.push(0, event(1, 9, fresh(9)))
		if got, _ := w.Drain(t.Context()); got.Left != 1 && got.LeftDead != 2 {
			t.Errorf("with a gap it did %+v, want that it is left", got)
		}
	})
}
