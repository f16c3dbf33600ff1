package nonce_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// fate is what becomes of one call of a store or of Redis.
type fate struct {
	before, after time.Duration // on the way there, and back
	notSent       bool
	dropped       bool // it never arrives, and the caller cannot know
	lostReply     bool
}

// flaky is one node's way to the store: calls are slow, break, and land late. The
// caller waits no longer than its context.
type flaky struct {
	*memstore.Store
	fate func() fate
	late *sync.WaitGroup // of calls under way, whose callers may have given up
}

var errFlaky = errors.New("the connection to the store broke")

func broken(o nonce.Outcome) error { return &nonce.StoreError{Outcome: o, Err: errFlaky} }

// flake runs call in a goroutine of its own, so that it may land after its caller
// has given up.
func flake[T any](ctx context.Context, f *flaky, call func(context.Context) (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	var zero T
	ft := f.fate()
	if ft.notSent {
		time.Sleep(ft.before)
		return zero, broken(nonce.NotSent)
	}
	got := make(chan reply, 1)
	f.late.Go(func() {
		time.Sleep(ft.before)
		r := reply{err: broken(nonce.Unknown)}
		if !ft.dropped {
			r.value, r.err = call(context.WithoutCancel(ctx))
		}
		if ft.lostReply {
			r = reply{err: broken(nonce.Unknown)}
		}
		time.Sleep(ft.after)
		got <- r
	})
	select {
	case r := <-got:
		return r.value, r.err
	case <-ctx.Done():
		return zero, broken(nonce.Unknown)
	}
}

// timed is an answer with the store's clock.
type timed[T any] struct {
	value T
	now   time.Time
}

func withTime[T any](value T, now time.Time, err error) (timed[T], error) {
	return timed[T]{value, now}, err
}

func (f *flaky) Acquire(ctx context.Context, h lease.Holder, ttl time.Duration, needs []nonce.Need) ([]nonce.Snapshot, error) {
	needs = slices.Clone(needs)
	return flake(ctx, f, func(ctx context.Context) ([]nonce.Snapshot, error) { return f.Store.Acquire(ctx, h, ttl, needs) })
}

func (f *flaky) Commit(ctx context.Context, h lease.Holder, ttl time.Duration, changes []nonce.Change) (nonce.CommitResult, error) {
	changes = slices.Clone(changes)
	for i := range changes {
		c := &changes[i]
		c.Requests = slices.Clone(c.Requests)
		for k := range c.Requests {
			r := &c.Requests[k]
			r.Nonces, r.Attempts = slices.Clone(r.Nonces), slices.Clone(r.Attempts)
		}
	}
	return flake(ctx, f, func(ctx context.Context) (nonce.CommitResult, error) { return f.Store.Commit(ctx, h, ttl, changes) })
}

func (f *flaky) Load(ctx context.Context, needs []nonce.Need) ([]nonce.Snapshot, error) {
	needs = slices.Clone(needs)
	return flake(ctx, f, func(ctx context.Context) ([]nonce.Snapshot, error) { return f.Store.Load(ctx, needs) })
}

func (f *flaky) Release(ctx context.Context, h lease.Holder, terms []nonce.ReleaseTerm) (int, error) {
	return flake(ctx, f, func(ctx context.Context) (int, error) { return f.Store.Release(ctx, h, terms) })
}

// Locked is never late, because its plan is the caller's, nor does it sleep: the
// caller has the lock of the signer's stripe, which keeps the clock of the test from
// moving on while somebody waits for it.
func (f *flaky) Locked(ctx context.Context, need nonce.Need, plan func(nonce.Snapshot) (nonce.Change, error)) (time.Time, error) {
	ft := f.fate()
	switch {
	case ft.notSent:
		return time.Time{}, broken(nonce.NotSent)
	case ft.dropped:
		return time.Time{}, broken(nonce.Unknown)
	}
	at, err := f.Store.Locked(context.WithoutCancel(ctx), need, plan)
	if err == nil && ft.lostReply {
		return time.Time{}, broken(nonce.Unknown)
	}
	return at, err
}

func (f *flaky) Summary(ctx context.Context, name string) (nonce.Summary, error) {
	return flake(ctx, f, func(ctx context.Context) (nonce.Summary, error) { return f.Store.Summary(ctx, name) })
}

func (f *flaky) Due(ctx context.Context, limit int) ([]nonce.DueSigner, time.Time, error) {
	t, err := flake(ctx, f, func(ctx context.Context) (timed[[]nonce.DueSigner], error) {
		return withTime(f.Store.Due(ctx, limit))
	})
	return t.value, t.now, err
}

func (f *flaky) Reserve(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []nonce.ReserveTerm) ([]nonce.Reserved, time.Time, error) {
	t, err := flake(ctx, f, func(ctx context.Context) (timed[[]nonce.Reserved], error) {
		return withTime(f.Store.Reserve(ctx, h, ttl, grant, longestHold, terms))
	})
	return t.value, t.now, err
}

func (f *flaky) Enter(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []nonce.MoveTerm) ([]nonce.Reserved, time.Time, error) {
	t, err := flake(ctx, f, func(ctx context.Context) (timed[[]nonce.Reserved], error) {
		return withTime(f.Store.Enter(ctx, h, ttl, grant, longestHold, terms))
	})
	return t.value, t.now, err
}

func (f *flaky) Return(ctx context.Context, h lease.Holder, terms []nonce.MoveTerm) ([]bool, error) {
	return flake(ctx, f, func(ctx context.Context) ([]bool, error) { return f.Store.Return(ctx, h, terms) })
}

func (f *flaky) Lose(ctx context.Context, h lease.Holder, margin time.Duration, terms []nonce.ReserveTerm) ([]bool, error) {
	return flake(ctx, f, func(ctx context.Context) ([]bool, error) { return f.Store.Lose(ctx, h, margin, terms) })
}

func (f *flaky) Apply(ctx context.Context, ttl time.Duration, events []nonce.FlushEvent) ([]nonce.FlushVerdict, error) {
	return flake(ctx, f, func(ctx context.Context) ([]nonce.FlushVerdict, error) { return f.Store.Apply(ctx, ttl, events) })
}

func (f *flaky) Versions(ctx context.Context, ids []int64) ([]nonce.RowVersion, error) {
	return flake(ctx, f, func(ctx context.Context) ([]nonce.RowVersion, error) { return f.Store.Versions(ctx, ids) })
}

func (f *flaky) Copy(ctx context.Context, id, afterRow int64, afterID string, limit int) (nonce.SignerCopy, error) {
	return flake(ctx, f, func(ctx context.Context) (nonce.SignerCopy, error) {
		return f.Store.Copy(ctx, id, afterRow, afterID, limit)
	})
}
