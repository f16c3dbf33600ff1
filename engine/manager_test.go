package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

func TestTroubleLeavesThePerformanceEngineAndSaysWhy(t *testing.T) {
	for reason, c := range map[string]struct {
		cause func(w *world, m *Manager)
		after time.Duration // at the latest
		not   time.Duration // not before
	}{
		"loss: gone": {func(_ *world, m *Manager) { m.Trouble(nonce.TroubleLoss, errors.New("gone")) }, time.Second, 0},
		"redis: Redis has had errors": {func(w *world, _ *Manager) {
			w.with(func() { w.redisErr = errAway })
		}, 4 * time.Second, 1500 * time.Millisecond},
		"slow: ": {func(_ *world, m *Manager) {
			for i := range 200 {
				m.Script(time.Duration(i%50/49) * time.Second)
			}
		}, time.Second, 0},
		"lag: ": {func(w *world, _ *Manager) {
			w.with(func() { w.lags[1].Oldest = time.Now().Add(-10 * time.Second) })
		}, 15 * time.Second, 9 * time.Second},
		"retries: ": {func(_ *world, m *Manager) {
			for range 21 {
				m.Retry()
			}
		}, time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := at(nonce.StatePerformance, nonce.StatePerformance)
			w.counts.Entered = 1
			m := manage(t, w)
			w.run(t, m)
			time.Sleep(3 * time.Second)
			c.cause(w, m)
			time.Sleep(c.not)
			if s, _ := w.state(); c.not > 0 && s != nonce.StatePerformance {
				t.Errorf("%s: it is %s too early", reason, s)
			}
			time.Sleep(c.after)
			synctest.Wait()
			if s, why := w.state(); s != nonce.StateDegraded || !strings.HasPrefix(why, reason) {
				t.Errorf("%s: it is %s because of %q", reason, s, why)
			}
			word, _, _ := strings.Cut(reason, ":")
			if w.counted("degraded "+word) != 1 || m.Goal() != nonce.GoalDrain {
				t.Errorf("%s: counted %v, goal %v", reason, w.notes, m.Goal())
			}
			w.with(func() {
				if left := w.cluster.ObserveUntil.Sub(w.cluster.ChangedAt); left.Round(time.Second) != time.Minute {
					t.Errorf("%s: observed for %v", reason, left)
				}
			})
		})
	}
}

func TestSmallTroublesAndOldOnesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		m := manage(t, w)
		w.run(t, m)
		for i := range 20 {
			m.Trouble(nonce.TroubleRedis, errAway) // one error, and then none for a while
			for j := range 200 {
				m.Script(time.Duration(j/199) * time.Second)
			}
			m.Retry()
			w.with(func() { w.lags[0].Oldest = time.Now().Add(time.Duration(-i%9) * time.Second) })
			time.Sleep(3 * time.Second)
		}
		synctest.Wait()
		if s, why := w.state(); s != nonce.StatePerformance {
			t.Errorf("it is %s because of %q", s, why)
		}
	})
}

func TestAFewSlowScriptsSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		m := manage(t, w)
		w.run(t, m)
		for range 5 {
			m.Script(time.Second)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s, why := w.state(); s != nonce.StatePerformance {
			t.Errorf("it is %s because of %q", s, why)
		}
	})
}

func TestAStoreThatIsAwayIsNoTroubleAndMakesNothingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		m := manage(t, w)
		w.run(t, m)
		time.Sleep(time.Second)
		w.with(func() { w.storeErr, w.lags[1].Oldest = errAway, time.Now() })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if m.FlushLate("x") {
			t.Error("hand-outs wait for a store that is away")
		}
		w.with(func() { w.storeErr = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		if !m.FlushLate("x") || m.FlushLate("xx") {
			t.Errorf("late are x: %v and xx: %v, want the first only", m.FlushLate("x"), m.FlushLate("xx"))
		}
		time.Sleep(5 * time.Second)
		w.with(func() { w.lags[1].Oldest = time.Time{} })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s, why := w.state(); s != nonce.StatePerformance || m.FlushLate("x") {
			t.Errorf("it is %s because of %q, late %v", s, why, m.FlushLate("x"))
		}
	})
}

func TestRedisCountsAsLostWhenItWasAskedInVainForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StateDrain, nonce.StateReliable)
		w.counts.Entered = 1
		m := manage(t, w)
		w.run(t, m)
		time.Sleep(time.Second)
		w.with(func() { w.redisErr = errAway })
		time.Sleep(9 * time.Second)
		if m.RedisGone() {
			t.Error("it is gone too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !m.RedisGone() {
			t.Error("it is not gone")
		}
		w.with(func() { w.redisErr = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		if m.RedisGone() {
			t.Error("it answers, and is gone")
		}
	})
}

func TestAProcessThatSleptDoesNotTakeRedisForLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		w.redisErr = errAway
		m := manage(t, w)
		m.watch(t.Context())
		time.Sleep(time.Hour) // nothing ran
		m.watch(t.Context())
		if m.RedisGone() {
			t.Error("one look after an hour, and it is gone")
		}
	})
}

func TestADrainEndsWhenNoSignerIsEnteredAndHurriesThoseThatAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StateDrain, nonce.StateReliable)
		held := time.Now().Add(time.Hour)
		for i, e := range []struct {
			name, owner string
			until       time.Time
		}{{"mine", "a", held}, {"theirs", "b", held}, {"preferred", "b", time.Now()}, {"unowned", "", time.Now()}} {
			w.entered = append(w.entered, nonce.EnteredSigner{ID: int64(i + 1), Signer: e.name, Lease: lease.Grant{Holder: lease.Holder{Node: e.owner}, ExpiresAt: e.until}})
		}
		w.counts.Entered = 4
		m := manage(t, w)
		w.run(t, m)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.with(func() {
			if w.settled["mine"] == 0 || w.settled["preferred"] == 0 || w.settled["theirs"] != 0 || w.settled["unowned"] != 0 {
				t.Errorf("settled %v, want mine and preferred", w.settled)
			}
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.with(func() {
			if w.settled["unowned"] == 0 || w.settled["theirs"] != 0 {
				t.Errorf("settled %v, want what nobody took too", w.settled)
			}
		})
		if s, _ := w.state(); s != nonce.StateDrain {
			t.Errorf("it is %s while signers are entered", s)
		}
		w.with(func() { w.counts.Entered, w.entered = 0, nil })
		time.Sleep(time.Second)
		synctest.Wait()
		if s, why := w.state(); s != nonce.StateReliable {
			t.Errorf("it is %s because of %q", s, why)
		}
	})
}

func TestOnlyTheLeaderMovesTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StateDrain, nonce.StateReliable)
		w.leads = false
		w.run(t, manage(t, w))
		time.Sleep(time.Minute)
		synctest.Wait()
		if s, _ := w.state(); s != nonce.StateDrain {
			t.Errorf("it is %s", s)
		}
	})
}

func TestAfterADegradationNobodyGoesUpBeforeItWasObserved(t *testing.T) {
	for _, auto := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := at(nonce.StateDegraded, nonce.StateReliable)
			w.cluster.ObserveUntil = time.Now().Add(time.Minute)
			m := manage(t, w, func(c *Config) { c.AutoUp = auto })
			w.run(t, m)
			time.Sleep(55 * time.Second)
			synctest.Wait()
			_, err := m.Switch(t.Context(), SwitchRequest{To: nonce.StatePerformance})
			if s, _ := w.state(); s != nonce.StateDegraded || err == nil || !strings.Contains(err.Error(), "refused in state DEGRADED: observation") {
				t.Errorf("it is %s, and an early switch ended with %v", s, err)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			want := nonce.StateReliable
			if auto {
				want = nonce.StatePerformance
			}
			if s, why := w.state(); s != want {
				t.Errorf("automatic %v: it is %s because of %q, want %s", auto, s, why, want)
			}
		})
	}
}

func TestGoingUpWaitsForAReconciliationWithoutDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StateDualWrite, nonce.StatePerformance)
		w.copies["s"] = equalPair(1, "s")
		w.copies["s"].next++
		w.run(t, manage(t, w))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		w.with(func() {
			if w.report.Different != 0 {
				t.Error("it was compared before every node knows of DUAL_WRITE")
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		w.with(func() {
			if w.cluster.State != nonce.StateDualWrite || !slices.Equal(w.forgot, []string{"s"}) || w.settled["s"] == 0 {
				t.Errorf("it is %s; forgotten %v, settled %v; want that the copy is made anew", w.cluster.State, w.forgot, w.settled)
			}
			w.copies["s"].next--
		})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s, why := w.state(); s != nonce.StatePerformance || why != "1 copies compared, no difference" {
			t.Errorf("it is %s because of %q", s, why)
		}
	})
}

func TestADifferenceThatStaysIsADegradation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StateDualWrite, nonce.StatePerformance)
		w.copies["s"] = equalPair(1, "s")
		w.copies["s"].next++
		w.run(t, manage(t, w))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s, why := w.state(); s != nonce.StateDegraded || !strings.HasPrefix(why, "different: 1 of 1 copies") {
			t.Errorf("it is %s because of %q", s, why)
		}
	})
}

func TestInDualWriteForItselfNothingGoesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StateDualWrite, nonce.StateDualWrite)
		w.run(t, manage(t, w))
		time.Sleep(time.Minute)
		synctest.Wait()
		if s, _ := w.state(); s != nonce.StateDualWrite {
			t.Errorf("it is %s", s)
		}
	})
}

func TestAConflictRemovesWhatRedisHas(t *testing.T) {
	w := at(nonce.StatePerformance, nonce.StatePerformance)
	w.copies["s"] = equalPair(1, "s")
	m := manage(t, w)
	if err := m.Conflict(t.Context(), "s"); err != nil || !slices.Equal(w.forgot, []string{"s"}) || w.settled["s"] != 1 {
		t.Errorf("%v, forgotten %v, settled %v", err, w.forgot, w.settled)
	}
}

func TestARebuildLeavesAloneWhatRedisServesAndWhatOthersOwn(t *testing.T) {
	w := at(nonce.StateDualWrite, nonce.StateDualWrite)
	held := time.Now().Add(time.Hour)
	w.entered = []nonce.EnteredSigner{
		{ID: 1, Signer: "fast", Standing: nonce.Standing{Engine: nonce.Performance}},
		{ID: 2, Signer: "theirs", Lease: lease.Grant{Holder: lease.Holder{Node: "b"}, ExpiresAt: held}},
		{ID: 3, Signer: "mine", Lease: lease.Grant{Holder: lease.Holder{Node: "a"}, ExpiresAt: held}},
		{ID: 4, Signer: "nobody's"},
	}
	m := manage(t, w)
	r, err := m.Rebuild(t.Context())
	if want := (RebuildReport{Rebuilt: 2, Others: 1, Skipped: 1}); r != want || err != nil {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
	if !slices.Equal(w.forgot, []string{"mine", "nobody's"}) || w.settled["mine"] != 1 || w.settled["fast"] != 0 {
		t.Errorf("forgotten %v, settled %v", w.forgot, w.settled)
	}
	w.cluster.State = nonce.StateReliable
	if err := m.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.cluster.Generation++
	if err := m.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Rebuild(t.Context()); err == nil || !strings.Contains(err.Error(), "refused in state RELIABLE") {
		t.Errorf("in RELIABLE: %v", err)
	}
}

func TestWhatAPromotedReplicaHasInItsQueueIsNoLagOnceNoSignerIsEntered(t *testing.T) {
	for state, want := range map[nonce.EngineState]lagged{
		nonce.StatePerformance: {events: 7, oldest: time.Minute, dead: 2},
		nonce.StateDegraded:    {events: 7, oldest: time.Minute, dead: 2},
		nonce.StateReliable:    {dead: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := at(state, nonce.StateReliable)
			w.lags[0].Events, w.lags[1].Events, w.lags[1].Dead = 3, 4, 2
			w.lags[1].Oldest = time.Now().Add(-time.Minute)
			m := manage(t, w)
			v := m.Look(t.Context())
			if got := (lagged{v.Waiting, v.Oldest, v.Dead}); got != want {
				t.Errorf("in %s a look finds %+v, want %+v", state, got, want)
			}
			m.watch(t.Context())
			if w.lag != want {
				t.Errorf("in %s the figures say %+v, want %+v", state, w.lag, want)
			}
		})
	}
}
