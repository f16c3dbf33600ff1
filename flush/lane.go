package flush

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// lane flushes some of the shards, one round after the other. Only the goroutine
// that runs it touches it, but for wake.
type lane struct {
	w       *Worker
	wake    chan struct{}
	shards  map[int]*shardState
	broken  map[int64]*grief // signers whose events the store does not take
	applied int              // transactions that the store took
	logged  time.Time        // when it was last said that a shard waits
}

// shardState is when a shard may be tried again, and when it is to be read.
type shardState struct {
	wait  backoff.ExponentialBackOff
	until time.Time     // it failed: not before, even if somebody asks
	due   time.Time     // not before, unless somebody asks
	idle  time.Duration // the last rest of a shard that had nothing
	blind time.Time     // since then it could not be read; zero: it could
}

// from is when the shard is read next if nobody asks.
func (s *shardState) from() time.Time {
	if s.due.After(s.until) {
		return s.due
	}
	return s.until
}

// logEvery is how often it is logged that shards of a lane go on failing.
const logEvery = 30 * time.Second

// grief is what is known of a signer whose events the store does not take.
type grief struct {
	since   time.Time
	tries   int
	applied int // lane.applied at the beginning
}

func (w *Worker) newLane() *lane {
	return &lane{w: w, wake: make(chan struct{}, 1), shards: make(map[int]*shardState), broken: make(map[int64]*grief)}
}

// run flushes each shard whose number modulo the number of lanes is first.
func (l *lane) run(ctx context.Context, first int) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	wake := l.wake
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		pause := time.Duration(0)
		if l.round(ctx, first) { // what comes next shares a transaction
			pause, wake = l.w.cfg.Gather, nil
		} else {
			pause, wake = l.untilDue(first), l.wake
		}
		timer.Reset(pause)
	}
}

// untilDue is how long the lane may rest if nobody wakes it.
func (l *lane) untilDue(first int) time.Duration {
	rest := l.w.cfg.Poll
	now := time.Now()
	for shard := first; shard < l.w.cfg.Shards; shard += len(l.w.lanes) {
		if l.w.flushes(shard) {
			rest = min(rest, l.state(shard).from().Sub(now))
		}
	}
	return max(rest, 0)
}

// round reads every shard that is due, applies what was read in as few transactions
// as its bounds allow, and acknowledges. It reports whether somebody waited for some
// of it.
func (l *lane) round(ctx context.Context, first int) (awaited bool) {
	work := l.readAll(ctx, first)
	l.applyAll(ctx, work)
	l.finishAll(ctx, work)
	for _, s := range work {
		l.plan(s)
		awaited = awaited || s.awaited()
	}
	return awaited
}

// plan says when a shard in which there were events is read again. Hand-outs, for
// which nobody waits, gather for a while, so that those of one signer are one change;
// each shard's time is another one, so that the work is spread evenly.
func (l *lane) plan(s *shardWork) {
	state := l.state(s.shard)
	state.idle = 0
	switch {
	case len(s.read) >= l.w.cfg.Batch:
		state.due = time.Time{}
	case s.awaited():
		state.due = time.Now().Add(l.w.cfg.Gather)
	default:
		share := l.w.share()
		state.due = time.Now().Add(share/2 + rand.N(share)) // #nosec G404 -- spreads what comes together; nobody gains by guessing it
	}
}

// readAll reads the shards that are due, or somebody has asked for, all at a time:
// Redis may be far away, or busy.
func (l *lane) readAll(ctx context.Context, first int) (work []*shardWork) {
	var shards []int
	now := time.Now()
	for shard := first; shard < l.w.cfg.Shards; shard += len(l.w.lanes) {
		state := l.state(shard)
		switch {
		case !l.w.flushes(shard):
			state.blind = time.Time{}
		case !now.Before(state.until) && (l.w.asked[shard].Swap(false) || !now.Before(state.due)):
			shards = append(shards, shard)
		}
	}
	read, errs := make([]*shardWork, len(shards)), make([]error, len(shards))
	var reading sync.WaitGroup
	for i, shard := range shards {
		reading.Go(func() { read[i], errs[i] = l.read(ctx, shard) })
	}
	reading.Wait()
	for i, shard := range shards {
		state := l.state(shard)
		if errs[i] != nil {
			l.later(shard, readReason(errs[i]), errs[i])
		}
		if errs[i] != nil && !errors.Is(errs[i], errBury) {
			l.seesNot(shard, now, errs[i])
			continue
		}
		state.blind = time.Time{}
		switch {
		case errs[i] != nil:
		case read[i] != nil:
			work = append(work, read[i])
		default:
			state.idle = min(max(2*state.idle, time.Millisecond), l.w.cfg.Poll)
			state.due = now.Add(state.idle)
		}
	}
	return work
}

// seesNot notes that a shard could not be read by a read that began at now. When that
// has been so for long it is not tried here any more, and the election finds another
// node for it.
func (l *lane) seesNot(shard int, now time.Time, err error) {
	state := l.state(shard)
	if state.blind.IsZero() {
		state.blind = now
	}
	at := state.blind.Add(l.w.cfg.HandOver)
	if state.until.After(at) {
		state.until = at
	}
	if !time.Now().Before(at) {
		delete(l.shards, shard) // it begins anew where it is taken again
		l.w.blind[shard].Store(true)
		l.complain(shard, readReason(err), err)
	}
}

// awaited reports whether somebody may wait for the flush: whoever ended a hold does,
// whoever was handed out nonces has them.
func (s *shardWork) awaited() bool {
	for i := range s.read {
		rows := s.read[i].Rows
		if len(rows) == 0 || slices.ContainsFunc(rows, func(r nonce.FlushRow) bool { return r.Status != nonce.Held }) {
			return true
		}
	}
	return false
}

// shardWork is what one round does for one shard.
type shardWork struct {
	shard  int
	read   []Entry            // the head of the stream, without what is buried
	groups map[int64][]*group // what is left to do, by signer
	done   map[string]bool    // what the store has, by Entry
	retry  RetryReason        // why some of it is left; "": none is
	err    error              // with retry
	left   int                // entries that are
}

// read returns nil where there is nothing to do. It touches nothing of the lane.
func (l *lane) read(ctx context.Context, shard int) (*shardWork, error) {
	accepted := l.w.hooks.Accepted()
	if len(accepted) == 0 {
		return nil, nil
	}
	call, cancel := context.WithTimeout(ctx, l.w.cfg.Timeout)
	defer cancel()
	entries, _, err := l.w.queue.Events(call, shard, l.w.cfg.Batch, 0, accepted)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	s := &shardWork{shard: shard, done: make(map[string]bool)}
	for _, e := range entries {
		if e.Err == nil {
			s.read = append(s.read, e)
		} else if err := l.buryEntries(ctx, shard, "", []Entry{e}, e.Err); err != nil {
			return nil, fmt.Errorf("%w: %w", errBury, err)
		}
	}
	s.groups = merge(shard, s.read)
	return s, nil
}

// errBury: the shard was read, and an entry of it is no event and cannot be put away.
var errBury = errors.New("a dead letter was not taken")

func readReason(err error) RetryReason {
	if errors.Is(err, redisstore.ErrIdentity) {
		return RetryLost
	}
	return RetryRedis
}

// settled are the first entries of the stream that the store has: those that can be
// removed from it. What is behind one that has to wait is read again, and is then
// there already.
func (s *shardWork) settled() []Entry {
	n := 0
	for n < len(s.read) && s.done[s.read[n].Entry] {
		n++
	}
	return s.read[:n]
}

// finishAll acknowledges what is done, and puts off what is not.
func (l *lane) finishAll(ctx context.Context, work []*shardWork) {
	errs := make([]error, len(work))
	var acking sync.WaitGroup
	for i, s := range work {
		acking.Go(func() { errs[i] = l.ack(ctx, s) })
	}
	acking.Wait()
	for i, s := range work {
		switch {
		case errs[i] != nil:
			l.later(s.shard, readReason(errs[i]), errs[i])
		case s.retry != "":
			l.later(s.shard, s.retry, s.err)
		default:
			l.state(s.shard).wait.Reset()
		}
	}
}

// ack touches nothing of the lane.
func (l *lane) ack(ctx context.Context, s *shardWork) error {
	settled := s.settled()
	if len(settled) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.w.cfg.Timeout)
	defer cancel()
	return l.w.queue.Ack(ctx, s.shard, settled)
}

func (l *lane) state(shard int) *shardState {
	s := l.shards[shard]
	if s == nil {
		s = &shardState{wait: backoff.ExponentialBackOff{
			InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: l.w.cfg.RetryMax,
		}}
		s.wait.Reset()
		l.shards[shard] = s
	}
	return s
}

// later puts a shard off.
func (l *lane) later(shard int, reason RetryReason, err error) {
	if errors.Is(err, context.Canceled) {
		return // the worker is being stopped
	}
	s := l.state(shard)
	wait := s.wait.NextBackOff()
	s.until = time.Now().Add(wait)
	l.w.hooks.Figures.Retry(reason)
	if wait >= l.w.cfg.RetryMax/2 { // a short one is nobody's business
		l.complain(shard, reason, err)
	}
}

// complain logs that shards fail, one of them for all.
func (l *lane) complain(shard int, reason RetryReason, err error) {
	if time.Since(l.logged) >= logEvery {
		l.logged = time.Now()
		l.w.log.Warn("the flush is put off and tried again", "shard", shard, "reason", string(reason), "error", err)
	}
}
