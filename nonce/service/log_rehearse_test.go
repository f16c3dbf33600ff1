package service_test

import (
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

// rehearse says that the performance engine is wanted, after a rehearsal.
func (l *logged) rehearse(n *node, lasts time.Duration) {
	l.Helper()
	if _, err := n.Switch(l.Context(), true, lasts, "test"); err != nil {
		l.Fatal(err)
	}
}

func withLog(o owned) bool { return o.log }

func TestTheEngineIsRehearsedBeforeItServes(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.allocateAll(n)
		l.rehearse(n, 10*time.Second)
		time.Sleep(2 * time.Second)
		if st := n.Engine(); st.State != service.StateDualWrite || len(st.Rehearsing) != shards || st.Rehearsed != 0 {
			t.Errorf("while it is rehearsed: %+v", st)
		}
		l.allocateAll(n)
		time.Sleep(100 * time.Millisecond)
		for i := range shards {
			if got := l.server.records(nonce.Rehearsal(i)); got != 1 {
				t.Errorf("the log of shard %d has %d records of the rehearsal", i, got)
			}
		}
		if l.owners(withLog) > 0 {
			t.Error("a shard has the engine before its rehearsal is over")
		}
		after := l.await(time.Minute, "all shards have a log", func() bool { return l.owners(withLog) == shards })
		if after < 7*time.Second || after > 12*time.Second {
			t.Errorf("it took %v", after)
		}
		for i := range shards {
			if got := l.server.records(i); got != 0 {
				t.Errorf("the log of shard %d begins with %d records", i, got)
			}
		}
		l.allocateAll(n)
		l.await(time.Second, "the rehearsal is over", func() bool {
			st := n.Engine()
			return st.State == service.StatePerformance && st.Rehearsing == nil
		})
	})
}

// TestARehearsalHarmsNoAnswer: the log does not answer, and the store does; once the log does,
// the rehearsal begins.
func TestARehearsalHarmsNoAnswer(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way := l.start("a")
		l.rehearse(n, 5*time.Second)
		time.Sleep(time.Second)
		way.hangs.Store(true)
		began := time.Now()
		for range 60 { // more than there is room for
			l.allocateAll(n)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("what the store answers at once took %v", took)
		}
		time.Sleep(20 * time.Second)
		if st := n.Engine(); l.owners(withLog) > 0 || st.State != service.StateDualWrite || st.Rehearsing[0].Trouble == "" {
			t.Errorf("while the log does not answer: %+v", st)
		}
		way.hangs.Store(false)
		after := l.await(time.Minute, "all shards have a log", func() bool { return l.owners(withLog) == shards })
		if after < 5*time.Second {
			t.Errorf("a rehearsal that failed was over after %v", after)
		}
		l.allocateAll(n)
	})
}

// TestEveryShardIsRehearsedBeforeOneServes: b, which has some of them, does not keep up.
func TestEveryShardIsRehearsedBeforeOneServes(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		b, _ := l.start("b")
		l.await(time.Minute, "b has its share", func() bool { return l.owners(of("b")) > 0 })
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpEngine && c.Holder.Node == "b" && len(c.Terms) > 0 {
				return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
			}
			return nil
		})
		l.rehearse(a, 2*time.Second)
		time.Sleep(time.Minute)
		if st := a.Engine(); l.owners(withLog) > 0 || st.Rehearsed != l.owners(of("a")) || !st.Rehearsing[0].Done {
			t.Errorf("without b: %+v", st)
		}
		l.disk.onBefore(nil)
		l.await(10*time.Second, "all shards have a log", func() bool { return l.owners(withLog) == shards })
		if b.Engine().Lost > 0 {
			t.Error("a log was lost")
		}
	})
}

func TestARehearsalCanBeCalledOff(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.rehearse(n, 10*time.Second)
		time.Sleep(2 * time.Second)
		l.allocateAll(n)
		l.switchTo(n, false)
		time.Sleep(time.Minute)
		if st := n.Engine(); st.State != service.StateReliable || l.owners(withLog) > 0 || st.Rehearsing != nil {
			t.Errorf("got %+v", st)
		}
		for i := range shards {
			if got := l.server.records(nonce.Rehearsal(i)); got > 0 {
				t.Errorf("the log of shard %d keeps %d records", i, got)
			}
		}
	})
}
