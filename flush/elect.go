package flush

import (
	"context"
	"time"

	"noncegate/nonce"
)

// elect takes the locks of shards that nobody has, and gives some back where other
// nodes have come, until ctx ends. The locks of a node that dies are free at once.
func (w *Worker) elect(ctx context.Context) {
	e := &election{w: w, free: make(map[int]bool)}
	defer e.close()
	tick := time.NewTicker(w.cfg.Elect)
	defer tick.Stop()
	for {
		if err := e.round(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("the locks of the flush shards are lost", "error", err)
			e.close()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// election is what a node knows of the locks. Only one goroutine uses it.
type election struct {
	w    *Worker
	lock nonce.FlushLock // nil: no session
	free map[int]bool    // shards beyond this node's part that were free the last time
}

func (e *election) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.w.cfg.Timeout)
	defer cancel()
	if e.lock == nil {
		lock, err := e.w.hooks.OpenLock(ctx)
		if err != nil {
			return err
		}
		e.lock = lock
	}
	if err := e.lock.Alive(ctx); err != nil {
		return err
	}
	part := (e.w.cfg.Shards + max(1, e.w.hooks.Nodes()) - 1) / max(1, e.w.hooks.Nodes())
	if err := e.giveBack(ctx, part); err != nil {
		return err
	}
	return e.take(ctx, part)
}

// take takes free shards up to this node's part, and beyond it those that were free
// the last time already: nobody else wants them.
func (e *election) take(ctx context.Context, part int) error {
	held := e.w.Held()
	for shard := range e.w.held {
		if e.w.held[shard].Load() {
			continue
		}
		got, err := e.lock.TryShard(ctx, shard)
		switch {
		case err != nil:
			return err
		case !got:
			delete(e.free, shard)
		case held >= part && !e.free[shard]:
			e.free[shard] = true
			if err := e.lock.ReleaseShard(ctx, shard); err != nil {
				return err
			}
		default:
			held++
			delete(e.free, shard)
			e.w.held[shard].Store(true)
			e.w.Wake(shard)
		}
	}
	return nil
}

// giveBack releases what is beyond this node's part, once there are others who took
// none: one at a time, so that a node that only seems to be there costs little.
func (e *election) giveBack(ctx context.Context, part int) error {
	if e.w.Held() <= part {
		return nil
	}
	for shard := len(e.w.held) - 1; shard >= 0; shard-- {
		if !e.w.held[shard].Load() {
			continue
		}
		e.w.held[shard].Store(false)
		delete(e.free, shard)
		return e.lock.ReleaseShard(ctx, shard)
	}
	return nil
}

// close gives back everything.
func (e *election) close() {
	for shard := range e.w.held {
		e.w.held[shard].Store(false)
	}
	if e.lock != nil {
		if err := e.lock.Close(); err != nil {
			e.w.log.Debug("the connection of the flush locks ended", "error", err)
		}
		e.lock = nil
	}
}
