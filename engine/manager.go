package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/nonce"
)

// Manager knows the state of the cluster, and takes part in changing it.
type Manager struct {
	store   Store
	redis   Redis
	check   func(ctx context.Context) ([]string, error)
	figures Figures
	log     *slog.Logger
	cfg     Config
	shards  []int

	state     atomic.Pointer[seen]
	health    health
	redisGone atomic.Bool
	late      []atomic.Bool         // by flush shard
	hooks     atomic.Pointer[Hooks] // nil until Start
	switching sync.Mutex            // one switch, reconciliation or rebuild at a time on this node

	stop context.CancelFunc
	done sync.WaitGroup
}

// seen is the cluster's state as it was read.
type seen struct {
	nonce.EngineCluster
	at time.Time // of this node's clock
}

// now estimates the store's clock.
func (s *seen) now() time.Time { return s.Now.Add(time.Since(s.at)) }

var _ nonce.EngineControl = (*Manager)(nil)

// New makes a manager that has read the state once, so that it can be asked.
func New(ctx context.Context, d Deps, cfg Config) (*Manager, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		store: d.Store, redis: d.Redis, check: d.Check, figures: d.Figures, log: d.Log.With("component", "engine"), cfg: cfg,
		late: make([]atomic.Bool, d.Redis.Shards()),
	}
	for i := range m.late {
		m.shards = append(m.shards, i)
	}
	if err := m.read(ctx); err != nil {
		return nil, fmt.Errorf("read which engine serves: %w", err)
	}
	return m, nil
}

// Start begins to watch, and to act. The caller must Stop.
func (m *Manager) Start(ctx context.Context, hooks Hooks) {
	m.hooks.Store(&hooks)
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.done.Go(func() { m.every(ctx, m.watch) })
	m.done.Go(func() { m.every(ctx, m.drive) })
}

// Stop ends both goroutines. It may be called twice.
func (m *Manager) Stop() {
	if m.stop != nil {
		m.stop()
	}
	m.done.Wait()
}

func (m *Manager) every(ctx context.Context, f func(context.Context)) {
	tick := time.NewTicker(m.cfg.Poll)
	defer tick.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Goal implements nonce.EngineControl.
func (m *Manager) Goal() nonce.Goal { return m.state.Load().State.Goal() }

// RedisGone implements nonce.EngineControl. On a cluster it is said when any server
// is gone for that long; by then the cluster has been DEGRADED, and the signers of
// the others have left.
func (m *Manager) RedisGone() bool { return m.redisGone.Load() }

// FlushLate implements nonce.EngineControl.
func (m *Manager) FlushLate(signer string) bool { return m.late[m.redis.Shard(signer)].Load() }

// Trouble implements nonce.EngineControl.
func (m *Manager) Trouble(t nonce.Trouble, err error) {
	m.figures.Trouble(t)
	m.health.tell(t, err)
}

// Script is told how long a batch of Redis took.
func (m *Manager) Script(took time.Duration) { m.health.script(took > m.cfg.ScriptLimit) }

// Retry is told of a retry of the flush that is not the store being away.
func (m *Manager) Retry() { m.health.retry() }

// Accepted are the servers whose events count.
func (m *Manager) Accepted() []nonce.Identity { return m.state.Load().Accepted }

// State is the cluster's state as this node knows it.
func (m *Manager) State() nonce.EngineCluster { return m.state.Load().EngineCluster }

// read reads the state.
func (m *Manager) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Poll)
	defer cancel()
	at := time.Now()
	c, err := m.store.EngineState(ctx)
	if err != nil {
		return err
	}
	m.know(c, at)
	return nil
}

// know takes note of a state. One that is older than what is known is not: answers
// may overtake each other.
func (m *Manager) know(c nonce.EngineCluster, at time.Time) {
	next := &seen{EngineCluster: c, at: at}
	for {
		last := m.state.Load()
		if last != nil && last.Generation > c.Generation {
			return
		}
		if !m.state.CompareAndSwap(last, next) {
			continue
		}
		m.figures.State(c)
		if last != nil && last.Generation != c.Generation {
			m.log.Info("the engine's state changed", "state", string(c.State), "from", string(last.State), "goal", string(c.Goal),
				"generation", c.Generation, "reason", c.Reason, "by", c.By)
			m.health.forget()
		}
		return
	}
}

// change switches the state, and knows what it is then.
func (m *Manager) change(ctx context.Context, t nonce.SwitchTerm) (nonce.EngineCluster, error) {
	t.By = m.cfg.Node
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	at := time.Now()
	c, err := m.store.SwitchEngine(ctx, t)
	if c.State != "" {
		m.know(c, at)
	}
	return c, err
}

// storeTimeout bounds one call that nobody polls for.
const storeTimeout = 5 * time.Second

// accepts reports whether the cluster accepted a server.
func accepts(c *nonce.EngineCluster, id nonce.Identity) bool { return slices.Contains(c.Accepted, id) }
