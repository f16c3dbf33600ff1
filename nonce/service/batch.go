package service

import (
	"cmp"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// batch is what a worker takes from its queue at a time.
type batch struct {
	tasks        []*task
	forwardsOver []*remoteSigner
	orders       []lease.Order
	due          []nonce.DueEntry // signers to be looked at for overdue holds
	tick         bool
	// signers and holds bound what is looked at for overdue holds, see pace.room
	signers, holds int
	waiting        bool // the store has listed more than is looked at now
}

func (b *batch) empty() bool {
	return len(b.tasks)+len(b.forwardsOver)+len(b.orders)+len(b.due) == 0 && !b.tick
}

func (w *worker) take() (b batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b.forwardsOver, w.forwardsOver = w.forwardsOver, nil
	b.orders, w.orders = w.orders, nil
	now := time.Now()
	b.tasks = w.queue.Take(w.svc.cfg.MaxBatch, now)
	b.signers, b.holds = w.pace.room(len(b.tasks), now)
	n := min(b.signers, len(w.due))
	b.due, w.due = w.due[:n:n], w.due[n:]
	b.waiting = len(w.due) > 0
	b.tick, w.tick = w.tick, false
	return b
}

// group makes one group a signer. Its tasks are in this order, which keeps that of arrival:
// those that waited for another node, or were parked, then those of this batch. A task whose
// signer still waits, or is parked, joins it there and is not run now.
func (w *worker) group(b *batch) []*group {
	groups := make([]*group, 0, min(len(b.tasks), 256)+len(w.parked)+len(b.forwardsOver)+len(b.due))
	open := w.open
	defer clear(open)
	begin := func(g *group) {
		open[g.name] = g
		groups = append(groups, g)
		for _, t := range g.tasks {
			t.move(inBatch)
		}
	}
	for _, st := range b.forwardsOver {
		if w.remote.get(st.name) != st || w.parked[st.name] != nil || open[st.name] != nil {
			continue // the signer's group finds what came back (collect)
		}
		begin(cmp.Or(st.waiting, w.newGroup(st.name)))
		st.waiting = nil
	}
	for name, g := range w.parked {
		if !g.retryAt.After(w.marked) && open[name] == nil {
			delete(w.parked, name)
			begin(g)
		}
	}
	for _, t := range b.tasks {
		name := t.req.Signer
		if g, ok := w.parked[name]; ok {
			g.add(t)
			continue
		}
		if st := w.remote.get(name); st != nil && st.waiting != nil {
			w.joinWaiting(st, t)
			continue
		}
		g := open[name]
		if g == nil {
			g = w.newGroup(name)
			begin(g)
		}
		g.tasks = append(g.tasks, t)
	}
	w.groupDue(b, open, begin)
	return groups
}

func (w *worker) newGroup(name string) *group {
	var g *group
	if n := len(w.spare); n > 0 {
		g, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		g = new(group)
	}
	g.name, g.shard, g.tasks = name, w.svc.shardOf(name), g.few[:0]
	if w.engine == nil { // it may keep parts of groups
		w.groups = append(w.groups, g)
	}
	return g
}

// recycle keeps the memory of the groups that ended with the batch.
func (w *worker) recycle() {
	for i, g := range w.groups {
		w.groups[i] = nil
		if st := w.remote.get(g.name); w.parked[g.name] == g || st != nil && st.waiting == g {
			continue
		}
		made := rules.Plan{}
		if !g.inDoubt {
			made.Answers, made.History = empty(g.made.Answers), empty(g.made.History)
		}
		*g = group{made: made}
		w.spare = append(w.spare, g)
	}
	w.groups = w.groups[:0]
}

// empty is the memory of a slice, which refers to nothing any more.
func empty[T any](s []T) []T {
	clear(s[:cap(s)])
	return s[:0]
}
