package flush

import (
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

// DrainReport says what a Drain did.
type DrainReport struct {
	Settled  int `json:"settled"`  // events that the store has now, or will never want
	Revived  int `json:"revived"`  // of them, dead letters
	Left     int `json:"left"`     // events that could not be applied now
	LeftDead int `json:"leftDead"` // dead letters that cannot be applied
}

// drainTries is how often in a row a drain tries what cannot be applied just now,
// such as a signer that another worker has locked; drainRest is the time between.
const (
	drainTries = 20
	drainRest  = 50 * time.Millisecond
)

// drain flushes one shard until its stream is empty, or what is left does not move.
func (l *lane) drain(ctx context.Context, shard int, report *DrainReport) error {
	for tries := 0; ; {
		s, err := l.read(ctx, shard)
		if err != nil || s == nil {
			return err
		}
		l.applyAll(ctx, []*shardWork{s})
		if err := l.ack(ctx, s); err != nil {
			return err
		}
		gone := len(s.settled())
		report.Settled += gone
		if gone > 0 || s.retry == "" {
			tries = 0
			continue
		}
		if tries++; tries == drainTries {
			report.Left += s.left
			return s.err
		}
		select {
		case <-ctx.Done():
			report.Left += s.left
			return ctx.Err()
		case <-time.After(drainRest):
		}
	}
}

// drainDead applies the dead letters of a shard that can be applied by now, and drops
// those that count no more.
func (l *lane) drainDead(ctx context.Context, shard int, report *DrainReport) error {
	dead, err := l.w.queue.Dead(ctx, shard, "", maxDead)
	if err != nil || len(dead) == 0 {
		return err
	}
	slices.SortStableFunc(dead, func(a, b DeadLetter) int { return cmp.Compare(a.From, b.From) })
	var done []string
	for i := range dead {
		if dead[i].Err != nil {
			continue // no version of this program can read it
		}
		g := &group{shard: shard, event: dead[i].FlushEvent, entries: []Entry{dead[i].Event}}
		switch r := l.apply(ctx, []*group{g})[0]; {
		case r.err != nil && nonce.OutcomeOf(r.err) != nonce.Aborted:
			return r.err
		case r.err == nil && (r.verdict == nonce.FlushApplied || r.verdict == nonce.FlushAlready || r.verdict == nonce.FlushOver):
			done = append(done, dead[i].ID)
		}
	}
	report.Settled += len(done)
	report.Revived += len(done)
	report.LeftDead += len(dead) - len(done)
	if len(done) == 0 {
		return nil
	}
	_, err = l.w.queue.Drop(ctx, shard, done)
	return err
}

// maxDead is how many dead letters of a shard one Drain looks at.
const maxDead = 10_000
