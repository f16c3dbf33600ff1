package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Renewer is the part of a store that renews the lease of a node.
type Renewer interface {
	// Renew gives a node a lease from now on for ttl, by the store's clock, and says which
	// shards are the node's. It raises the counter of the node's row by one. Another
	// incarnation of the node is ErrSuperseded, a node that is not registered ErrWentBack.
	Renew(ctx context.Context, h Holder, ttl time.Duration) (Renewal, error)
}

// renewalsPerLease is how often a lease is renewed before it would end. After a renewal that
// failed the next one is tried after a quarter of that time, and the first of these may take half
// of a third of the lease only: two may be lost, even if they hang, and a third one begins before
// the lease ends.
const (
	renewalsPerLease = 3
	triesPerRenewal  = 4
)

// firstPatience is how long the first renewal may take, whatever the length of the lease: a
// node that starts has nothing to lose, and the store may have to be connected to.
const firstPatience = 5 * time.Second

// Keeper renews the lease of one run of one node, in a goroutine of its own, until Stop, or
// until it learns that this run must not serve any more.
type Keeper struct {
	store   Renewer
	holder  Holder
	ttl     time.Duration
	log     *slog.Logger
	renewed func(r Renewal, started, ended time.Time)
	lost    func(err error, renewed bool) (goesOn bool)

	counter   int64     // of the last heartbeat that was confirmed
	confirmed time.Time // when that began
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// Keep takes the lease of a node that is registered, and keeps it. The end of ctx ends the
// first renewal only; later ones end by Stop. renewed is called after
// each renewal, from one goroutine at a time (this one, then the Keeper's), with the times
// between which the store was asked. lost is called with ErrSuperseded or
// ErrWentBack; the heartbeat is over then, unless the store renewed the lease and lost says that it
// goes on. Keep returns an error only if the first renewal fails. Neither function may call Stop,
// which waits for them; renewed is first called before Keep returns.
func Keep(ctx context.Context, store Renewer, h Holder, ttl time.Duration, renewed func(r Renewal, started, ended time.Time),
	lost func(err error, renewed bool) (goesOn bool), log *slog.Logger) (*Keeper, error) {
	k := &Keeper{store: store, holder: h, ttl: ttl, log: log.With("component", "lease", "node", h.Node), renewed: renewed, lost: lost}
	if err := k.once(ctx, max(firstPatience, k.patience())); err != nil {
		return nil, fmt.Errorf("take the lease of node %q: %w", h.Node, err)
	}
	beats, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.cancel = cancel
	k.done.Go(func() { k.run(beats) })
	return k, nil
}

// errOver ends the heartbeat of a node that does not go on.
var errOver = errors.New("the heartbeat is over")

// Stop ends the heartbeat and waits for it. The lease ends by itself. It may be called twice.
func (k *Keeper) Stop() {
	k.cancel()
	k.done.Wait()
}

func (k *Keeper) run(ctx context.Context) {
	every := k.ttl / renewalsPerLease
	tick := time.NewTicker(every)
	defer tick.Stop()
	failed, over := 0, false // renewals since the last one that was confirmed; the lease is, and that was said
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		patience := k.patience()
		if failed == 1 { // not again: a store that is always slower would never be waited for
			patience = k.ttl / renewalsPerLease / 2
		}
		switch err := k.once(ctx, patience); {
		case ctx.Err() != nil: // the end of the heartbeat is no outage
			return
		case errors.Is(err, ErrSuperseded), errors.Is(err, ErrWentBack):
			k.lost(err, false)
			return
		case errors.Is(err, errOver):
			return
		case err != nil:
			failed++
			tick.Reset(every / triesPerRenewal)
			if failed == 1 {
				k.log.Warn("the lease of this node was not renewed; it is tried again", "lease", k.ttl, "error", err)
			}
			if !over && time.Since(k.confirmed) >= k.ttl {
				over = true
				k.log.Warn("the lease of this node is over; other nodes may take its shards", "failed", failed, "error", err)
			}
		case failed > 0:
			k.log.Info("the lease of this node is renewed again", "failed", failed)
			failed, over = 0, false
			tick.Reset(every)
		}
	}
}

// patience is how long a renewal may take. It is below the time between two renewals, so
// that a slow one does not delay the next.
func (k *Keeper) patience() time.Duration { return k.ttl / renewalsPerLease * 9 / 10 }

// once renews the lease. A heartbeat whose answer was lost may or may not have counted, so
// the counter may rise by more than one; but it rises.
func (k *Keeper) once(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	started := time.Now()
	r, err := k.store.Renew(ctx, k.holder, k.ttl)
	if err != nil {
		return fmt.Errorf("renew, for %v at most: %w", patience, err)
	}
	if r.Counter <= k.counter {
		err := fmt.Errorf("%w: heartbeat %d of node %q was confirmed, it shows %d", ErrWentBack, k.counter, k.holder.Node, r.Counter)
		if !k.lost(err, true) {
			return errOver
		}
	}
	k.counter, k.confirmed = r.Counter, started
	k.renewed(r, started, time.Now())
	return nil
}
