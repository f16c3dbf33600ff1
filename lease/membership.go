package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// MembershipConfig are the settings of a Membership.
type MembershipConfig struct {
	// Interval between two heartbeats. Shorter notices a second process of the
	// same node id, and a store that went back, sooner.
	Interval time.Duration
	// Timeout of one heartbeat. It must be below Interval.
	Timeout time.Duration
	// Mode is how the node serves, for others to read.
	Mode string
	// Patience is how long after a beat others take the node for live. 0 stands
	// for three intervals and a timeout: two beats may be lost and the third come
	// as late as a beat can, and nobody thinks the node gone. Shorter notices a
	// dead node sooner and takes a slow store for one.
	Patience time.Duration
	// Signers is how many signers the node owns, asked before each beat from the
	// heartbeat's goroutine, which it must not block. nil stands for none.
	Signers func() int64
}

func (c MembershipConfig) validate() error {
	switch {
	case c.Timeout <= 0 || c.Interval <= c.Timeout:
		return fmt.Errorf("heartbeat interval %v must be above its timeout %v, which must be above 0", c.Interval, c.Timeout)
	case c.Patience != 0 && c.Patience <= c.Interval+c.Timeout:
		return fmt.Errorf("patience of %v with a node must be above its heartbeat interval and timeout, %v in all", c.Patience, c.Interval+c.Timeout)
	}
	return nil
}

// withDefaults fills what was left out.
func (c MembershipConfig) withDefaults() MembershipConfig {
	if c.Patience == 0 {
		c.Patience = 3*c.Interval + c.Timeout
	}
	if c.Signers == nil {
		c.Signers = func() int64 { return 0 }
	}
	return c
}

// Membership is one run of one node in the registry. It beats in a goroutine of
// its own until Stop, or until it learns that this run must not serve any more.
type Membership struct {
	registry Registry
	holder   Holder
	cfg      MembershipConfig
	log      *slog.Logger
	ended    func(error)

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Join registers a new incarnation of the node and starts its heartbeat. ended is
// called at most once, from the heartbeat's goroutine, with ErrSuperseded or
// ErrWentBack; the heartbeat is over then.
func Join(ctx context.Context, r Registry, node, url string, cfg MembershipConfig, log *slog.Logger, ended func(error)) (*Membership, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	h, err := r.Register(ctx, Presence{Node: node, URL: url, Mode: cfg.Mode, Patience: cfg.Patience})
	if err != nil {
		return nil, err
	}
	beats, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &Membership{registry: r, holder: h, cfg: cfg, log: log.With("component", "lease"), ended: ended, cancel: cancel}
	m.done.Go(func() { m.beat(beats) })
	return m, nil
}

// Holder identifies this run.
func (m *Membership) Holder() Holder { return m.holder }

// Leave tells others that this node goes away: to them it is no longer live. Its
// beats go on, so that it still notices a later start of its node id and a store
// that went back, but they do not make it live again. It may be called again after
// an error; Stop leaves in any case.
func (m *Membership) Leave(ctx context.Context) error { return m.registry.Leave(ctx, m.holder) }

// Stop ends the heartbeat, waits for it, and leaves the registry. The lease of a
// signer is not touched by it. It may be called twice.
func (m *Membership) Stop(ctx context.Context) error {
	m.cancel()
	m.done.Wait()
	return m.Leave(ctx)
}

func (m *Membership) beat(ctx context.Context) {
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	seen := int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b, err := m.once(ctx)
		if err == nil {
			err = judge(m.holder, seen, b)
		}
		switch {
		case errors.Is(err, ErrSuperseded), errors.Is(err, ErrWentBack):
			m.ended(err)
			return
		case err != nil:
			m.log.Warn("heartbeat", "error", err)
		default:
			seen = b.Counter
		}
	}
}

func (m *Membership) once(ctx context.Context) (Heartbeat, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	return m.registry.Beat(ctx, m.holder, m.cfg.Signers())
}

// judge compares a beat with the last acknowledged one. A beat whose answer was
// lost may or may not have counted, so the counter may rise by more than one; but
// it rises. A log is lost only from its end, so a counter that did not rise
// covers signers nobody remembers.
func judge(h Holder, seen int64, b Heartbeat) error {
	switch {
	case b.Incarnation > h.Incarnation:
		return fmt.Errorf("node %q, incarnation %d: %w (incarnation %d)", h.Node, h.Incarnation, ErrSuperseded, b.Incarnation)
	case b.Incarnation < h.Incarnation:
		return fmt.Errorf("%w: it knows incarnation %d of node %q, this is %d", ErrWentBack, b.Incarnation, h.Node, h.Incarnation)
	case b.Counter <= seen:
		return fmt.Errorf("%w: heartbeat %d of node %q was acknowledged, it shows %d", ErrWentBack, seen, h.Node, b.Counter)
	}
	return nil
}
