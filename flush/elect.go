package flush

import (
	"context"
	"sync"
	"time"

	"noncegate/nonce"
)

// elect takes the locks of shards that nobody has, and gives some back where other
// nodes have come, or where this one cannot read them, until ctx ends. The locks of a
// node that dies are free at once.
func (w *Worker) elect(ctx context.Context) {
	e := &election{w: w, left: make(map[int]bool), free: make(map[int]bool), gave: -1}
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
	left map[int]bool    // shards that this node could not read
	free map[int]bool    // shards beyond this node's part that were free the last time

	gave     int           // the shard that was given back last, for others; -1: none
	patience time.Duration // how long none is given back, if nobody takes that one
	keep     time.Time     // until then none is
}

const (
	// leader is not a shard: who has its lock leads the cluster. It is apart from the
	// shards, since those go to nodes that can read them, and somebody has to lead
	// when none can.
	leader = -1
	// How long a node keeps shards beyond its part that nobody took: a node that only
	// seems to be there, or that cannot read Redis, costs a shard one pause in that
	// time.
	firstPatience = time.Second
	lastPatience  = time.Minute
)

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
	if err := e.lead(ctx); err != nil {
		return err
	}
	if err := e.leave(ctx); err != nil {
		return err
	}
	e.lookAgain(ctx)
	part := (e.w.cfg.Shards + max(1, e.w.hooks.Nodes()) - 1) / max(1, e.w.hooks.Nodes())
	if err := e.take(ctx, part); err != nil {
		return err
	}
	return e.giveBack(ctx, part)
}

// lead takes the lead where nobody has it.
func (e *election) lead(ctx context.Context) error {
	if e.w.leads.Load() {
		return nil
	}
	got, err := e.lock.TryShard(ctx, leader)
	e.w.leads.Store(got && err == nil)
	return err
}

// leave gives back the shards that this node has not been able to read for a while:
// another node may. One server of a cluster may be out of reach, and a node that is
// led to another Redis than the one that was accepted reads nothing of any: so it looks
// at all others too before it takes them.
func (e *election) leave(ctx context.Context) error {
	var left []int
	for shard := range e.w.held {
		if e.w.held[shard].Load() && e.w.blind[shard].Load() {
			left = append(left, shard)
			e.left[shard] = true
			e.drop(shard)
		}
	}
	if left == nil {
		return nil
	}
	e.w.log.Warn("flush shards that this node cannot read are left to others", "shards", left)
	for shard := range e.w.held {
		if !e.w.held[shard].Load() {
			e.w.blind[shard].Store(true)
		}
	}
	for _, shard := range left {
		if err := e.lock.ReleaseShard(ctx, shard); err != nil {
			return err
		}
	}
	return nil
}

// drop stops the flush of a shard here.
func (e *election) drop(shard int) {
	e.w.held[shard].Store(false)
	delete(e.free, shard)
	if e.gave == shard {
		e.gave = -1
	}
}

// lookAgain tries to read the shards that this node could not read, or does not know
// whether it can. Until it can, it does not take them.
func (e *election) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.w.cfg.HandOver)
	defer cancel()
	accepted := e.w.hooks.Accepted()
	var looking sync.WaitGroup
	for shard := range e.w.held {
		if e.w.held[shard].Load() || !e.w.blind[shard].Load() {
			continue
		}
		looking.Go(func() {
			if _, _, err := e.w.queue.Events(ctx, shard, 1, 0, accepted); err == nil || len(accepted) == 0 {
				e.w.blind[shard].Store(false)
			}
		})
	}
	looking.Wait()
	var again []int
	for shard := range e.w.blind {
		if e.left[shard] && !e.w.blind[shard].Load() {
			delete(e.left, shard)
			again = append(again, shard)
		}
	}
	if again != nil {
		e.w.log.Info("flush shards can be read again", "shards", again)
	}
}

// take takes free shards up to this node's part, and beyond it those that were free
// the last time already: nobody else wants them.
func (e *election) take(ctx context.Context, part int) error {
	held := e.w.Held()
	for shard := range e.w.held {
		if e.w.held[shard].Load() || e.w.blind[shard].Load() {
			continue
		}
		got, err := e.lock.TryShard(ctx, shard)
		switch {
		case err != nil:
			return err
		case !got:
			e.taken(shard)
		case held >= part && !e.free[shard]:
			e.free[shard] = true
			if err := e.lock.ReleaseShard(ctx, shard); err != nil {
				return err
			}
		default:
			held++
			e.notTaken(shard)
			e.w.held[shard].Store(true)
			e.w.Wake(shard)
		}
	}
	return nil
}

// taken: another node has the shard.
func (e *election) taken(shard int) {
	delete(e.free, shard)
	if e.gave == shard {
		e.gave, e.patience, e.keep = -1, 0, time.Time{}
	}
}

// notTaken: this node takes the shard, which no other did.
func (e *election) notTaken(shard int) {
	delete(e.free, shard)
	if e.gave == shard {
		e.patience = min(max(2*e.patience, firstPatience), lastPatience)
		e.gave, e.keep = -1, time.Now().Add(e.patience)
	}
}

// giveBack releases what is beyond this node's part, once there are others who took
// none: one at a time, so that a node that only seems to be there costs little.
func (e *election) giveBack(ctx context.Context, part int) error {
	if e.gave >= 0 && e.w.blind[e.gave].Load() {
		e.gave = -1 // this node does not see any more who takes it
	}
	if e.w.Held() <= part || e.gave >= 0 || time.Now().Before(e.keep) {
		return nil
	}
	for shard := len(e.w.held) - 1; shard >= 0; shard-- {
		if !e.w.held[shard].Load() {
			continue
		}
		e.drop(shard)
		e.gave = shard
		return e.lock.ReleaseShard(ctx, shard)
	}
	return nil
}

// close gives back everything.
func (e *election) close() {
	e.w.leads.Store(false)
	for shard := range e.w.held {
		e.drop(shard)
	}
	if e.lock != nil {
		if err := e.lock.Close(); err != nil {
			e.w.log.Debug("the connection of the flush locks ended", "error", err)
		}
		e.lock = nil
	}
}
