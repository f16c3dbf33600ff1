package flush

import (
	"testing"
	"testing/synctest"
	"time"
)

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
