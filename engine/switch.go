package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"noncegate/nonce"
)

// SwitchRequest asks for a state.
type SwitchRequest struct {
	// To is DUAL_WRITE, PERFORMANCE, DRAIN_AND_SYNC or RELIABLE.
	To nonce.EngineState
	// Force passes over what is no danger but a reason to wait: dead letters, doubt, a
	// flush queue that is not empty, the time of observation.
	Force  bool
	DryRun bool // look, and change nothing
	By     string
}

// CheckResult is one thing that was looked at before going up.
type CheckResult struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Forced bool   `json:"forced,omitempty"` // it is not, and --force passes over it
	Text   string `json:"text"`
}

// SwitchReport says what was looked at, and what came of it.
type SwitchReport struct {
	From   nonce.EngineState `json:"from"`
	To     nonce.EngineState `json:"to"`
	Goal   nonce.EngineState `json:"goal"`
	Checks []CheckResult     `json:"checks,omitempty"`
	Done   bool              `json:"done"`
	DryRun bool              `json:"dryRun,omitempty"`
}

// Failed are the checks that were not passed, as a sentence.
func (r *SwitchReport) Failed() string {
	var failed []string
	for _, c := range r.Checks {
		if !c.OK && !c.Forced {
			failed = append(failed, c.Name+": "+c.Text)
		}
	}
	return strings.Join(failed, "; ")
}

// RefusedError is a switch that is not possible now. Nothing happened.
type RefusedError struct {
	State  nonce.EngineState // there is
	Reason string            // a sentence
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused in state %s: %s", e.State, e.Reason)
}

func refused(s *seen, format string, args ...any) error {
	return &RefusedError{State: s.State, Reason: fmt.Sprintf(format, args...)}
}

// Switch begins the way to another state. The rest of it goes by itself.
func (m *Manager) Switch(ctx context.Context, q SwitchRequest) (SwitchReport, error) {
	if !m.switching.TryLock() {
		return SwitchReport{}, refused(m.state.Load(), "another switch, reconciliation or rebuild is under way on this node")
	}
	defer m.switching.Unlock()
	if err := m.read(ctx); err != nil {
		return SwitchReport{}, fmt.Errorf("read the state: %w", err)
	}
	s := m.state.Load()
	to, err := m.way(s, q)
	r := SwitchReport{From: s.State, To: to.To, Goal: to.Goal, DryRun: q.DryRun}
	if err != nil {
		return r, err
	}
	to.FromGeneration, to.Reason = s.Generation, "asked for by "+q.By
	if s.State == nonce.StateReliable || s.State == nonce.StateDegraded {
		if r.Checks, err = m.checks(ctx, s, q, to.To != nonce.StateReliable); err != nil {
			return r, err
		}
		if failed := r.Failed(); failed != "" {
			return r, refused(s, "%s", failed)
		}
	}
	if q.DryRun {
		return r, nil
	}
	c, err := m.change(ctx, to)
	switch {
	case errors.Is(err, nonce.ErrGeneration):
		return r, &RefusedError{State: c.State, Reason: fmt.Sprintf("another switch was faster (%s by %s)", c.Reason, c.By)}
	case errors.Is(err, nonce.ErrEntered), errors.Is(err, nonce.ErrOldNodes):
		return r, refused(s, "%v", err)
	case err != nil:
		return r, fmt.Errorf("switch the engine: %w", err)
	}
	r.Done = true
	return r, nil
}

// way is the first step from the state there is to the one asked for.
func (m *Manager) way(s *seen, q SwitchRequest) (nonce.SwitchTerm, error) {
	up := nonce.SwitchTerm{To: nonce.StateDualWrite, Goal: q.To}
	drain := nonce.SwitchTerm{To: nonce.StateDrain, Goal: nonce.StateReliable}
	rising := s.State == nonce.StateDualWrite && s.EngineCluster.Goal == nonce.StatePerformance
	switch q.To {
	case nonce.StateDualWrite, nonce.StatePerformance:
		switch {
		case s.State == q.To && !rising:
			return up, refused(s, "that is the state already")
		case rising && q.To == nonce.StatePerformance:
			return up, refused(s, "it is on the way to %s already (%s)", s.EngineCluster.Goal, s.Reason)
		case s.State == nonce.StatePerformance:
			return up, refused(s, "signers would not return; drain first")
		case s.State == nonce.StateDrain:
			return up, refused(s, "signers are returning (%s); wait until it is RELIABLE", s.Reason)
		}
		return up, nil
	case nonce.StateDrain, nonce.StateReliable:
		switch s.State {
		case nonce.StatePerformance, nonce.StateDualWrite:
			return drain, nil
		case nonce.StateReliable:
			return drain, refused(s, "there is nothing to drain")
		case nonce.StateDrain:
			return drain, refused(s, "signers are returning already (%s)", s.Reason)
		}
		if q.To == nonce.StateDrain {
			return drain, refused(s, "signers are returning already (%s)", s.Reason)
		}
		return nonce.SwitchTerm{To: nonce.StateReliable, Goal: nonce.StateReliable}, nil
	}
	return up, refused(s, "%q is no state to switch to", q.To)
}

// checker collects what was looked at.
type checker struct {
	force bool
	list  []CheckResult
}

func (c *checker) must(name string, ok bool, format string, args ...any) {
	c.list = append(c.list, CheckResult{Name: name, OK: ok, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) should(name string, ok bool, format string, args ...any) {
	c.must(name, ok, format, args...)
	c.list[len(c.list)-1].Forced = !ok && c.force
}

// checks looks at what going up takes, or the end of a degradation. Where Redis is
// what it must be, its servers are accepted, unless the run is dry.
func (m *Manager) checks(ctx context.Context, s *seen, q SwitchRequest, up bool) ([]CheckResult, error) {
	c := &checker{force: q.Force}
	counts, err := m.counts(ctx)
	if err != nil {
		return nil, fmt.Errorf("count signers: %w", err)
	}
	if s.State == nonce.StateDegraded {
		c.must("signers", counts.Entered == 0, "%d are still in the performance engine", counts.Entered)
		wait := max(0, s.ObserveUntil.Sub(s.now())).Round(time.Second)
		c.should("observation", wait == 0, "%v are left after %s", wait, s.Reason)
	}
	if !up {
		return c.list, nil
	}
	if counts.Doubtful == 0 {
		c.should("doubt", true, "no signer has nonces in doubt")
	} else {
		c.should("doubt", false, "%d signers have nonces in doubt, until %s", counts.Doubtful, stamp(counts.DoubtUntil))
	}
	notes, err := m.check(ctx)
	if err != nil {
		c.must("redis", false, "%v", err)
		return c.list, nil
	}
	c.must("redis", true, "%s", strings.Join(notes, "; "))
	if err := m.probe(ctx, c, s, q.DryRun); err != nil {
		return c.list, err
	}
	m.queue(ctx, c, q.DryRun)
	return c.list, nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// probe runs every command once, and accepts the servers that answered.
func (m *Manager) probe(ctx context.Context, c *checker, s *seen, dry bool) error {
	servers, err := m.redis.Probe(ctx)
	if err != nil {
		c.must("scripts", false, "%v", err)
		return nil
	}
	ids := make([]nonce.Identity, 0, len(servers))
	slowest := time.Duration(0)
	for _, v := range servers {
		ids = append(ids, v.Identity)
		slowest = max(slowest, v.Took)
	}
	c.must("scripts", slowest <= m.cfg.ScriptLimit, "all commands answered by %d servers, the slowest in %v", len(ids), slowest.Round(10*time.Microsecond))
	if dry {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	switch err := m.store.AcceptIdentities(ctx, s.Generation, ids); {
	case errors.Is(err, nonce.ErrGeneration):
		return refused(s, "another switch was faster")
	case err != nil:
		return fmt.Errorf("accept the servers: %w", err)
	}
	return nil
}

// queueWait is how long the flush queue may take to become empty: what is in it counts
// no more, since no signer is entered, but who flushes has to see that.
const queueWait = 5 * time.Second

// queue looks at what waits to be flushed, and at the dead letters.
func (m *Manager) queue(ctx context.Context, c *checker, dry bool) {
	end := time.Now().Add(queueWait)
	for {
		lags, err := m.lag(ctx)
		if err != nil {
			c.must("flush queue", false, "%v", err)
			return
		}
		var events, dead int64
		for _, l := range lags {
			events, dead = events+l.Events, dead+l.Dead
		}
		if events > 0 && !dry && time.Now().Before(end) && sleep(ctx, m.cfg.Poll/10) {
			continue
		}
		c.should("flush queue", events == 0, "%d events wait", events)
		c.should("dead letters", dead == 0, "%d, see gateway engine replay", dead)
		return
	}
}
