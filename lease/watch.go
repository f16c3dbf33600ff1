package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// WatchConfig are the settings of a Watch.
type WatchConfig struct {
	// Interval between two looks at the registry. Shorter learns sooner who came
	// and who went; each look is one small read of the store.
	Interval time.Duration
	// Timeout of one look. It must be below Interval.
	Timeout time.Duration
}

func (c WatchConfig) validate() error {
	if c.Timeout <= 0 || c.Interval <= c.Timeout {
		return fmt.Errorf("the interval %v of looking for nodes must be above its timeout %v, which must be above 0", c.Interval, c.Timeout)
	}
	return nil
}

// Watch looks at the registry again and again, in a goroutine of its own, until
// Stop.
type Watch struct {
	registry Register
	cfg      WatchConfig
	log      *slog.Logger
	each     func([]Node)

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// StartWatch reads the list of nodes and gives it to each, and then again every
// Interval. each gets every list that could be read, also one that is like the last;
// the list is its own. It is called from one goroutine at a time (this one, then the
// Watch's), and must not block. When the registry cannot be read nothing is called:
// the last list stands, and the outage is logged once. That the first look failed
// is the error.
func StartWatch(ctx context.Context, r Register, cfg WatchConfig, log *slog.Logger, each func([]Node)) (*Watch, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Watch{registry: r, cfg: cfg, log: log.With("component", "lease"), each: each}
	if err := w.look(ctx); err != nil {
		return nil, fmt.Errorf("look for other nodes: %w", err)
	}
	looks, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	w.done.Go(func() { w.run(looks) })
	return w, nil
}

// Stop ends the looks and returns when nothing is called any more. It may be called
// twice.
func (w *Watch) Stop() {
	w.cancel()
	w.done.Wait()
}

func (w *Watch) run(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Interval)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := w.look(ctx)
		switch {
		case ctx.Err() != nil: // the end of this watch is no outage
			return
		case err != nil && !away:
			w.log.Warn("the registry of nodes cannot be read; the last list stands", "error", err)
		case err == nil && away:
			w.log.Info("the registry of nodes can be read again")
		}
		away = err != nil
	}
}

func (w *Watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	nodes, _, err := w.registry.Nodes(ctx)
	if err == nil {
		w.each(nodes)
	}
	return err
}
