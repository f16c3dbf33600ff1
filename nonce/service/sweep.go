package service

import (
	"container/heap"
	"context"
	"math"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

const (
	// idleSweep is how many signers a worker looks at for overdue holds in a batch while
	// nobody else wants anything of it.
	idleSweep = 64
	// busySweep is the same beside requests, until the first of them have so many overdue
	// holds together.
	busySweep, busySweepHolds = 8, 64
	// sweepPace is how many holds a second all workers of a node end beside requests. Each
	// is a row of history: 10,000 of them are a tenth of one processor.
	sweepPace = 20_000
	// busyFor is how long after its last request a worker sweeps as beside requests.
	busyFor = time.Second
	// sweepLook bounds the signers that one look at the store's list of deadlines brings.
	sweepLook = 1024
	// sweepMargin is how long a hold lasts beyond its deadline before it is looked at: the
	// second of the rules, and what the node does not know of the store's clock.
	sweepMargin = 1050 // ms
	// unreadableAgain is when a signer that is stopped, or whose row cannot be read, is looked at
	// again.
	unreadableAgain = 600_000 // ms
)

// dates is a heap of the signers with open holds that a worker remembers, by their first
// deadline. A mark leaves the signer where it is, so a look may find nothing to end, and puts
// it back for the next deadline.
type dates []*signer

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d dates) Len() int           { return len(d) }
func (d dates) Less(i, j int) bool { return d[i].dueAt < d[j].dueAt }
func (d dates) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}
func (d *dates) Push(x any) {
	x.(*signer).index = len(*d)
	*d = append(*d, x.(*signer))
}
func (d *dates) Pop() any {
	last := (*d)[len(*d)-1]
	(*d)[len(*d)-1] = nil
	*d = (*d)[:len(*d)-1]
	last.dueAt = 0
	return last
}

// expect notes the signer's first deadline, unless an earlier one is noted.
func (d *dates) expect(sig *signer) {
	switch at := sig.row.FirstDeadline(); {
	case at == 0:
	case sig.dueAt == 0:
		sig.dueAt = at
		heap.Push(d, sig)
	case at < sig.dueAt:
		sig.dueAt = at
		heap.Fix(d, sig.index)
	}
}

// drop forgets a signer.
func (d *dates) drop(sig *signer) {
	if sig.dueAt != 0 {
		heap.Remove(d, sig.index)
	}
}

// passed reports whether it is time to look at the first.
func (d dates) passed(now int64) bool { return len(d) > 0 && d[0].dueAt+sweepMargin <= now }

// sweep makes the workers look for overdue holds, those of signers they remember and those
// that the store has listed.
func (s *Service) sweep(*time.Ticker) {
	if s.haltedBy() != nil {
		return
	}
	s.open.Sweep()
	paused := s.clock.paused()
	s.fig.SweepsPaused(paused)
	if s.basic != nil {
		s.basic.sweep(paused)
		return
	}
	for _, w := range s.workers {
		w.sweep(paused)
	}
}

// sweep fills the worker's list of signers to be looked at, unless sweeps pause or it has not come
// to the end of it, and wakes the worker.
func (w *worker) sweep(paused bool) {
	w.mu.Lock()
	busy := len(w.due) > 0
	w.tick = true
	w.mu.Unlock()
	if !busy && !paused {
		var ids []int
		for _, m := range w.owned() {
			ids = append(ids, m.ID)
		}
		due, err := w.svc.due(ids)
		if err != nil {
			w.svc.log.Debug("looking for overdue holds", "error", err)
		}
		w.mu.Lock()
		w.due = append(w.due, due...)
		w.mu.Unlock()
	}
	w.signal()
}

// due are signers of the shards that the store has listed for now or before.
func (s *Service) due(ids []int) ([]nonce.DueEntry, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := s.timeout()
	defer cancel()
	return s.store.Due(ctx, ids, sweepLook)
}

// Watched are signers that the store lists as those whose chain is watched, of the shards that
// this node looks after: its own, and in mode basic all, while no node of the other mode lives. They
// are at most limit, in order of ID and above after.
func (s *Service) Watched(ctx context.Context, after int64, limit int) ([]nonce.WatchEntry, error) {
	var ids []int
	for _, sh := range s.shards {
		if sh.Mine() || s.basic != nil && len(s.table.Fleet().Live) == 0 {
			ids = append(ids, sh.ID)
		}
	}
	if len(ids) == 0 || !s.enter() {
		return nil, nil
	}
	defer s.inside.Done()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	return s.store.Watched(ctx, ids, after, limit)
}

// Tend has this node look after a signer that it owns: read it, where it is not remembered, end
// what is over, and list it among those that are watched as its chain says now.
func (s *Service) Tend(ctx context.Context, signer string) error {
	if s.basic == nil {
		_, err := s.Do(ctx, &nonce.Request{Kind: nonce.KindStatus, Signer: signer})
		return err
	}
	if !s.enter() {
		return nonce.ErrDraining
	}
	defer s.inside.Done()
	mu := s.basic.stripe(signer)
	mu.Lock()
	defer mu.Unlock()
	return s.basic.commit(signer, nil)
}

// pace keeps the ending of overdue holds from harming requests. Its methods are called with
// worker.batchMu held, but for close.
type pace struct {
	every     time.Duration // for each hold that ended beside requests
	busyUntil time.Time
	next      time.Time   // beside requests, the next look is not before
	again     *time.Timer // wakes the worker for it
}

func newPace(workers int, wake func()) pace {
	return pace{every: time.Second * time.Duration(workers) / sweepPace, again: stoppedTimer(wake)}
}

// stoppedTimer is a timer that is to be set.
func stoppedTimer(wake func()) *time.Timer {
	t := time.AfterFunc(time.Hour, wake)
	t.Stop()
	return t
}

// room is how many signers may be looked at in a batch of so many tasks, and after how many
// overdue holds to stop.
func (p *pace) room(tasks int, now time.Time) (signers, holds int) {
	if tasks > 0 {
		p.busyUntil = now.Add(busyFor)
	}
	switch {
	case !now.Before(p.busyUntil):
		return idleSweep, math.MaxInt
	case now.Before(p.next):
		return 0, 0
	}
	return busySweep, busySweepHolds
}

// ended follows a batch: so many holds ended, and there are more to be ended, or not.
func (p *pace) ended(holds int, more bool, now time.Time) {
	if !now.Before(p.busyUntil) {
		return
	}
	if holds > 0 {
		p.next = now.Add(time.Duration(holds) * p.every)
	}
	if more {
		p.again.Reset(max(0, time.Until(p.next)))
	}
}

// groupDue adds to a batch the signers to be looked at: those that the store has listed, and
// those that are remembered. Whoever has a request in the batch is looked at with it.
func (w *worker) groupDue(b *batch, open map[string]*group, begin func(*group)) {
	w.more = false
	if w.svc.clock.paused() || w.svc.haltedBy() != nil || w.svc.stopping() {
		return
	}
	look := func(name string) *group {
		g := open[name]
		if g == nil {
			if w.parked[name] != nil || w.remote.get(name) != nil {
				return nil
			}
			g = w.newGroup(name)
			begin(g)
		}
		g.look = true
		return g
	}
	for _, e := range b.due {
		if sh := w.svc.shardOf(e.Signer); sh.Mine() {
			if g := look(e.Signer); g != nil {
				g.listed = e
			}
		}
	}
	now, dates := w.svc.clock.now().Earliest, &w.memory.dates
	signers, holds := b.signers-len(b.due), b.holds
	for signers > 0 && holds > 0 && dates.passed(now) {
		sig := heap.Pop(dates).(*signer)
		if sig.shard.Mine() && sig.stay == sig.shard.Stay {
			look(sig.name)
			signers--
			holds -= overdue(&sig.row, now)
		}
	}
	w.more = dates.passed(now)
}

// overdue is how many holds of a signer are over.
func overdue(row *nonce.Signer, now int64) (n int) {
	for i := range row.Live {
		if e := &row.Live[i]; e.Status == nonce.Held && e.Until <= now {
			n++
		}
	}
	return n
}

// lookedAt ends a look at a signer, and notes its next deadline. A look that ends in another
// way notes none; the store has the signer listed, and the sweep finds it there.
func (w *worker) lookedAt(g *group) {
	g.look = false
	if w.memory.signers[g.name] == g.sig {
		w.memory.dates.expect(g.sig)
	}
}

// relisted is the write that lists a signer of that version for later, and leaves it as it is.
func relisted(name string, term lease.ShardTerm, version, now int64) nonce.Write {
	return nonce.Write{Name: name, Term: term, Check: true, Signer: nonce.Signer{Version: version}, DueAt: now + unreadableAgain}
}

// postpone lists a signer that cannot be read, or is stopped, for later, so that those behind it
// in the store's list are found.
func (w *worker) postpone(g *group, version int64) {
	if g.listed.Signer == "" {
		return
	}
	ctx, cancel := w.svc.timeout()
	defer cancel()
	later := relisted(g.name, g.shard.Believed(), version, w.svc.clock.now().Earliest)
	later.Generation = w.generation
	if _, err := w.svc.store.Commit(ctx, w.svc.holder, []nonce.Write{later}); err != nil {
		w.svc.log.Debug("a signer that is stopped, or cannot be read, stays listed", "signer", g.name, "error", err)
	}
}
