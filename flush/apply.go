package flush

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/nonce"
)

// applyAll works off the groups of all shards in waves: each takes the first group
// of every signer, since a transaction may have a signer once.
func (l *lane) applyAll(ctx context.Context, work []*shardWork) {
	by := make(map[int]*shardWork, len(work))
	for _, s := range work {
		by[s.shard] = s
	}
	for ctx.Err() == nil {
		wave, rows := []*group(nil), 0
		for _, s := range work {
			for _, groups := range s.groups {
				if len(wave) > 0 && rows >= l.w.cfg.MaxRows {
					break
				}
				wave = append(wave, groups[0])
				rows += len(groups[0].event.Rows)
			}
		}
		if len(wave) == 0 {
			return
		}
		for _, r := range l.apply(ctx, wave) {
			l.settle(ctx, by[r.group.shard], r)
		}
	}
}

// result is what became of one group.
type result struct {
	group   *group
	verdict nonce.FlushVerdict
	err     error // the store did not say; verdict means nothing
}

// apply applies groups of different signers in one transaction. Where the store
// refuses that as a whole, it is halved until the one at fault is alone.
func (l *lane) apply(ctx context.Context, groups []*group) []result {
	verdicts, err := l.call(ctx, groups)
	if err == nil {
		results := make([]result, len(groups))
		for i, g := range groups {
			results[i] = result{group: g, verdict: verdicts[i]}
		}
		return results
	}
	if nonce.OutcomeOf(err) == nonce.Aborted && len(groups) > 1 {
		half := len(groups) / 2
		return append(l.apply(ctx, groups[:half]), l.apply(ctx, groups[half:])...)
	}
	results := make([]result, len(groups))
	for i, g := range groups {
		results[i] = result{group: g, err: err}
	}
	return results
}

// call is one Apply. It outlives a Stop: a transaction that was begun is waited for.
func (l *lane) call(ctx context.Context, groups []*group) ([]nonce.FlushVerdict, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.w.cfg.Timeout)
	defer cancel()
	events := make([]nonce.FlushEvent, len(groups))
	rows, entries := 0, 0
	for i, g := range groups {
		events[i] = g.event
		rows += len(g.event.Rows)
		entries += len(g.entries)
	}
	began := time.Now()
	verdicts, err := l.w.ledger.Apply(ctx, l.w.cfg.LeaseTTL, events)
	if err == nil && len(verdicts) != len(events) {
		err = fmt.Errorf("the store said %d verdicts about %d events", len(verdicts), len(events))
	}
	if err == nil {
		l.applied++
		l.w.hooks.Figures.Applied(time.Since(began), rows, entries)
	}
	return verdicts, err
}

// settle decides what the result of a signer's first group means for the rest.
func (l *lane) settle(ctx context.Context, s *shardWork, r result) {
	id := r.group.event.ID
	switch {
	case r.err != nil:
		l.failed(ctx, s, r)
		return
	case r.verdict == nonce.FlushApplied, r.verdict == nonce.FlushAlready, r.verdict == nonce.FlushOver:
		l.w.hooks.Figures.Settled(r.verdict, len(r.group.entries))
		delete(l.broken, id)
		s.settle(r.group.entries)
		s.next(id)
		if r.verdict != nonce.FlushOver {
			l.w.hooks.Flushed(r.group.event.Signer, r.group.event.To)
		}
	case r.verdict == nonce.FlushPartly:
		l.trim(ctx, s, r.group)
	case r.verdict == nonce.FlushGap:
		l.gap(ctx, s, r.group)
	default:
		s.leave(id, RetryLocked, nil)
	}
}

func (s *shardWork) settle(entries []Entry) {
	for i := range entries {
		s.done[entries[i].Entry] = true
	}
}

// next takes the signer's first group out of the work.
func (s *shardWork) next(id int64) {
	if s.groups[id] = s.groups[id][1:]; len(s.groups[id]) == 0 {
		delete(s.groups, id)
	}
}

// leave puts off all that is left of the signer.
func (s *shardWork) leave(id int64, reason RetryReason, err error) {
	for _, g := range s.groups[id] {
		s.left += len(g.entries)
	}
	delete(s.groups, id)
	s.retry, s.err = reason, err
}

// trim takes out of a group what the store has already, so that the rest can be
// applied: what was merged before may not be what is merged now.
func (l *lane) trim(ctx context.Context, s *shardWork, g *group) {
	id := g.event.ID
	ctx, cancel := context.WithTimeout(ctx, l.w.cfg.Timeout)
	defer cancel()
	rows, err := l.w.ledger.Versions(ctx, []int64{id})
	if err != nil || len(rows) != 1 {
		s.leave(id, RetryAway, err)
		return
	}
	left := slices.DeleteFunc(slices.Clone(g.entries), func(e Entry) bool { return e.To <= rows[0].Version })
	if len(left) == len(g.entries) {
		s.leave(id, RetryLocked, nil) // it moved between the two answers
		return
	}
	s.settle(g.entries[:len(g.entries)-len(left)])
	l.w.hooks.Figures.Settled(nonce.FlushAlready, len(g.entries)-len(left))
	groups := append(merge(s.shard, left)[id], s.groups[id][1:]...)
	if s.groups[id] = groups; len(groups) == 0 {
		delete(s.groups, id)
	}
}

// gap puts a signer off whose row is before its events. Nothing that works leaves a
// gap, so one that stays means that what came before them is gone.
func (l *lane) gap(ctx context.Context, s *shardWork, g *group) {
	if t := l.grieve(g.event.ID); t.tries < 3 || time.Since(t.since) < l.w.cfg.GapPatience {
		s.leave(g.event.ID, RetryGap, nil)
		return
	}
	l.bury(ctx, s, g, fmt.Errorf("events of the signer before version %d are missing", g.event.From))
}

// failed deals with a group that was alone in its transaction, or with a store that
// did not answer.
func (l *lane) failed(ctx context.Context, s *shardWork, r result) {
	id := r.group.event.ID
	switch nonce.OutcomeOf(r.err) {
	case nonce.NotSent:
		s.leave(id, RetryAway, r.err)
		return
	case nonce.Unknown:
		s.leave(id, RetryUnknown, r.err)
		return
	}
	if len(r.group.entries) > 1 { // event by event, from now on
		groups := make([]*group, 0, len(r.group.entries)+len(s.groups[id])-1)
		for _, e := range r.group.entries {
			groups = append(groups, &group{shard: s.shard, event: e.FlushEvent, entries: []Entry{e}})
		}
		s.groups[id] = append(groups, s.groups[id][1:]...)
		return
	}
	t := l.grieve(id)
	// A store that takes nothing at all has another trouble than this event.
	hopeless := t.tries >= l.w.cfg.RefusedLimit && l.applied > t.applied
	if !errors.Is(r.err, nonce.ErrInvariant) && !hopeless {
		s.leave(id, RetryRefused, r.err)
		return
	}
	l.bury(ctx, s, r.group, r.err)
}

func (l *lane) grieve(id int64) *grief {
	t := l.broken[id]
	if t == nil {
		t = &grief{since: time.Now(), applied: l.applied}
		l.broken[id] = t
	}
	t.tries++
	return t
}

// bury makes dead letters of a group, which can never be applied. What comes after
// it in its signer is a gap now.
func (l *lane) bury(ctx context.Context, s *shardWork, g *group, why error) {
	if err := l.buryEntries(ctx, s.shard, g.event.Signer, g.entries, why); err != nil {
		s.leave(g.event.ID, readReason(err), err)
		return
	}
	s.read = slices.DeleteFunc(s.read, func(e Entry) bool {
		return slices.ContainsFunc(g.entries, func(b Entry) bool { return b.Entry == e.Entry })
	})
	l.w.hooks.Conflict(g.event.Signer, why)
	s.next(g.event.ID)
}

func (l *lane) buryEntries(ctx context.Context, shard int, signer string, entries []Entry, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.w.cfg.Timeout)
	defer cancel()
	for _, e := range entries {
		if _, err := l.w.queue.Bury(ctx, shard, e, why.Error()); err != nil {
			return err
		}
		l.w.hooks.Figures.Buried(1)
	}
	l.w.log.Error("events can never be applied; they are dead letters now", "shard", shard, "signer", signer,
		"first", entries[0].Entry, "from", entries[0].From, "events", len(entries), "error", why)
	return nil
}
