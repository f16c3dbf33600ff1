package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"noncegate/nonce"
)

// switchCase is a switch that is asked for in some state.
type switchCase struct {
	state, goal, to nonce.EngineState
	then            nonce.EngineState // "": refused
	says            string
}

func TestSwitchesThatArePossible(t *testing.T) {
	const (
		R, W, P, D, G = nonce.StateReliable, nonce.StateDualWrite, nonce.StatePerformance, nonce.StateDrain, nonce.StateDegraded
	)
	for _, c := range []switchCase{
		{R, R, W, W, ""}, {R, R, P, W, ""}, {R, R, D, "", "there is nothing to drain"}, {R, R, R, "", "there is nothing to drain"},
		{W, W, W, "", "that is the state already"}, {W, W, P, W, ""}, {W, P, P, "", "on the way to PERFORMANCE already"}, {W, P, W, W, ""}, {W, W, D, D, ""}, {W, P, R, D, ""},
		{P, P, P, "", "that is the state already"}, {P, P, W, "", "drain first"}, {P, P, D, D, ""}, {P, P, R, D, ""},
		{D, R, P, "", "signers are returning"}, {D, R, W, "", "signers are returning"}, {D, R, D, "", "returning already"}, {D, R, R, "", "returning already"},
		{G, R, P, W, ""}, {G, R, W, W, ""}, {G, R, D, "", "returning already"}, {G, R, R, R, ""},
		{R, R, "SIDEWAYS", "", "no state to switch to"},
	} {
		w := at(c.state, c.goal)
		m := manage(t, w)
		dry, dryErr := m.Switch(t.Context(), SwitchRequest{To: c.to, DryRun: true})
		if s, _ := w.state(); s != c.state || dry.Done {
			t.Errorf("%s to %s: a dry run made it %s", c.state, c.to, s)
		}
		r, err := m.Switch(t.Context(), SwitchRequest{To: c.to, By: "me"})
		s, _ := w.state()
		name := fmt.Sprintf("%s (%s) to %s", c.state, c.goal, c.to)
		refused, isRefused := errors.AsType[*RefusedError](err)
		switch {
		case (err == nil) != (dryErr == nil):
			t.Errorf("%s: %v, and dry %v", name, err, dryErr)
		case c.then == "":
			if !isRefused || refused.State != c.state || !strings.Contains(err.Error(), c.says) || s != c.state {
				t.Errorf("%s: %v, state %s; want a refusal with %q", name, err, s, c.says)
			}
		case err != nil || s != c.then || !r.Done:
			t.Errorf("%s: %v, %+v, state %s; want %s", name, err, r, s, c.then)
		}
	}
}

func TestWhatIsLookedAtBeforeGoingUp(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		force  bool // helps
	}{
		"redis":        {func(w *world) { w.checkErr = errors.New("it evicts") }, false},
		"scripts":      {func(w *world) { w.redisErr = errAway }, false},
		"doubt":        {func(w *world) { w.counts.Doubtful = 2 }, true},
		"flush queue":  {func(w *world) { w.lags[0].Events = 3 }, true},
		"dead letters": {func(w *world) { w.lags[1].Dead = 3 }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			c.change(w)
			m := manage(t, w)
			r, err := m.Switch(t.Context(), SwitchRequest{To: nonce.StatePerformance})
			if err == nil || !strings.Contains(err.Error(), "refused in state RELIABLE: "+name) || r.Done {
				t.Errorf("%s: %v", name, err)
			}
			r, err = m.Switch(t.Context(), SwitchRequest{To: nonce.StatePerformance, Force: true})
			if (err == nil) != c.force || r.Done != c.force {
				t.Errorf("%s, forced: %v, done %v", name, err, r.Done)
			}
			if c.force && !accepts(&w.cluster, server) {
				t.Errorf("%s: the servers are not accepted", name)
			}
		})
	}
}

func TestOfTwoSwitchesAtOnceOneIsRefused(t *testing.T) {
	w := newWorld()
	m := manage(t, w)
	w.onSwitch = func() { // another node is faster
		w.cluster.Generation, w.cluster.State, w.cluster.By, w.cluster.Reason = 1, nonce.StateDualWrite, "b", "asked for"
	}
	_, err := m.Switch(t.Context(), SwitchRequest{To: nonce.StatePerformance})
	if err == nil || err.Error() != "refused in state DUAL_WRITE: another switch was faster (asked for by b)" {
		t.Errorf("%v", err)
	}
	m.switching.Lock()
	defer m.switching.Unlock()
	if _, err := m.Switch(t.Context(), SwitchRequest{To: nonce.StatePerformance}); err == nil || !strings.Contains(err.Error(), "under way on this node") {
		t.Errorf("beside another one on this node: %v", err)
	}
}

func TestDegradedWithSignersIsNotLeft(t *testing.T) {
	w := at(nonce.StateDegraded, nonce.StateReliable)
	w.counts.Entered = 3
	m := manage(t, w)
	for _, to := range []nonce.EngineState{nonce.StateReliable, nonce.StatePerformance} {
		if _, err := m.Switch(t.Context(), SwitchRequest{To: to, Force: true}); err == nil || !strings.Contains(err.Error(), "3 are still in the performance engine") {
			t.Errorf("to %s: %v", to, err)
		}
	}
}
