package flush

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// view is the streams as one node sees them.
type view struct {
	*streams
	blind  atomic.Bool
	takes  atomic.Int64 // nanoseconds a read takes
	noBury atomic.Bool
	asked  atomic.Int64
}

func (v *view) Bury(ctx context.Context, shard int, e Entry, why string) (bool, error) {
	if v.noBury.Load() {
		return false, errors.New("READONLY")
	}
	return v.streams.Bury(ctx, shard, e, why)
}

func (v *view) Events(ctx context.Context, shard, most int, block time.Duration, accepted []nonce.Identity) ([]Entry, nonce.Identity, error) {
	v.asked.Add(1)
	if d := time.Duration(v.takes.Load()); d > 0 { // timers of 0 crash the race detector: go.dev/issue/78156
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil, nonce.Identity{}, ctx.Err()
		case <-timer.C:
		}
	}
	if v.blind.Load() {
		return nil, nonce.Identity{}, redisstore.ErrIdentity
	}
	return v.streams.Events(ctx, shard, most, block, accepted)
}

func TestAShardIsFlushedByWhoHasItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		other := &session{locks: d.locks}
		d.locks.who[0] = other
		q.push(0, event(1, 0, fresh(0)))
		w := start(t, q, l, d, Config{Shards: 2})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.Held() != 1 || l.at(1) != 0 {
			t.Errorf("%d shards are held, version %d; want the free one, and the other left alone", w.Held(), l.at(1))
		}
		other.Close() // its node has died
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		if w.Held() != 2 || l.at(1) != 1 {
			t.Errorf("%d shards are held, version %d; want both, and all flushed", w.Held(), l.at(1))
		}
	})
}

func TestLostLocksAreTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		w := start(t, q, l, d, Config{Shards: 2})
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		d.locks.breakAll()
		thief := &session{locks: d.locks}
		if got, _ := thief.TryShard(t.Context(), 0); !got {
			t.Fatal("the lock is not free")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w.Held() != 1 || w.held[0].Load() {
			t.Errorf("%d shards are held, want the one that nobody took", w.Held())
		}
	})
}

// A node whose Redis is another one than its peers', or out of its reach, must not keep
// anything from being flushed.
func TestAShardGoesToANodeThatCanReadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(0, 1, 2, 3, 4, 5, 6, 7), newDesk()
		d.nodes = 2
		seeing, blind := &view{streams: q}, &view{streams: q}
		first := start(t, blind, l, d, Config{Shards: 8})
		second := start(t, seeing, l, d, Config{Shards: 8})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if first.Held() != 4 || second.Held() != 4 {
			t.Fatalf("they hold %d and %d shards, want 4 each", first.Held(), second.Held())
		}
		blind.blind.Store(true)
		for shard := range 8 {
			q.push(shard, event(int64(shard), 0, fresh(0)))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		left, _ := q.left()
		if first.Held() != 0 || first.Unreadable() != 8 || second.Held() < 7 || left != 0 {
			t.Errorf("the blind node holds %d shards and counts %d as unreadable, the other holds %d, %d events are left; want 0, 8, at least 7, and none",
				first.Held(), first.Unreadable(), second.Held(), left)
		}
		blind.blind.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if first.Held() != 4 || second.Held() != 4 || first.Unreadable() != 0 {
			t.Errorf("when it sees again they hold %d and %d shards, %d unreadable; want 4 each and none", first.Held(), second.Held(), first.Unreadable())
		}
	})
}

func TestWhatNobodyCouldReadIsFlushedSoonAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		v := &view{streams: q}
		w := start(t, v, l, d, Config{Shards: 4})
		time.Sleep(time.Second)
		v.blind.Store(true)
		q.push(0, event(1, 0, fresh(0)))
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.Held() != 0 || !w.Leads() {
			t.Errorf("%d shards are held, leads: %t; want no shard, and the lead", w.Held(), w.Leads())
		}
		if asked := v.asked.Load(); asked > 1000+4*130 {
			t.Errorf("Redis was asked %d times in a minute", asked)
		}
		v.blind.Store(false)
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		if w.Held() != 4 || l.at(1) != 1 {
			t.Errorf("%d shards are held, version %d; want all, flushed", w.Held(), l.at(1))
		}
	})
}

// Where Redis does not answer at all, each read takes its whole timeout.
func TestAShardOfWhichNothingIsHeardIsGivenBackAsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		v := &view{streams: q}
		w := start(t, v, l, d, Config{Shards: 4, Timeout: time.Second})
		time.Sleep(2 * time.Second)
		v.takes.Store(int64(time.Hour))
		time.Sleep(4 * time.Second) // HandOver, a timeout that began before it, an election
		synctest.Wait()
		if w.Held() != 0 {
			t.Errorf("%d shards are held", w.Held())
		}
	})
}

func TestASlowRedisIsReadAgainAfterItWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		v := &view{streams: q}
		v.takes.Store(int64(600 * time.Millisecond))
		w := start(t, v, l, d, Config{Shards: 2})
		time.Sleep(10 * time.Second)
		v.takes.Store(int64(time.Hour))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if w.Held() != 0 {
			t.Errorf("while it is away %d shards are held", w.Held())
		}
		v.takes.Store(int64(600 * time.Millisecond))
		q.push(0, event(1, 0, fresh(0)))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.Held() != 2 || l.at(1) != 1 {
			t.Errorf("%d shards are held, version %d", w.Held(), l.at(1))
		}
	})
}

func TestAShardWhoseDeadLettersAreNotTakenCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		q.shards[0] = append(q.shards[0], Entry{Entry: "000001", Err: errors.New("it is no event")})
		v := &view{streams: q}
		v.noBury.Store(true)
		w := start(t, v, l, d, Config{Shards: 2})
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if w.Unreadable() > 0 {
				t.Fatal("it counts as unreadable")
			}
		}
		if d.retried(RetryRedis) == 0 {
			t.Error("it was not tried again")
		}
	})
}

func TestOneNodeLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		d.nodes = 2
		workers := []*Worker{start(t, q, l, d, Config{Shards: 1}), start(t, q, l, d, Config{Shards: 1})}
		leader := func() int {
			time.Sleep(time.Second)
			synctest.Wait()
			if workers[0].Leads() == workers[1].Leads() {
				t.Fatalf("both lead, or none: %t", workers[0].Leads())
			}
			return slices.IndexFunc(workers, (*Worker).Leads)
		}
		first := leader()
		workers[first].Stop()
		if leader() == first {
			t.Error("who has ended leads")
		}
	})
}

// What a node gives back for others, and they do not take, is not given back again and
// again: each time nobody flushes it for a moment.
func TestANodeThatTakesNothingCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		d.nodes = 2
		w := start(t, q, l, d, Config{Shards: 8, Poll: time.Second})
		time.Sleep(10 * time.Second)
		idle := 0
		for range 3000 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if w.Held() < 8 {
				idle++
			}
		}
		if idle > 100 { // each time for less than a second, at most once a minute after a while
			t.Errorf("in 300 s a shard lay idle for %d tenths of a second", idle)
		}
		if idle == 0 {
			t.Error("nothing was given back")
		}
	})
}

func TestNodesShareTheShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := newStreams(), newRows(1), newDesk()
		first := start(t, q, l, d, Config{Shards: 8})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if first.Held() != 8 {
			t.Errorf("alone it holds %d shards, want 8", first.Held())
		}
		d.look(func() { d.nodes = 2 })
		second := start(t, q, l, d, Config{Shards: 8})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if first.Held() != 4 || second.Held() != 4 {
			t.Errorf("they hold %d and %d shards, want 4 each", first.Held(), second.Held())
		}
		second.Stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if first.Held() < 7 {
			t.Errorf("when the other has gone it holds %d shards, want those too", first.Held())
		}
	})
}
