package nonce

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// read answers status and list from the store, and, where Redis serves the signer,
// from Redis as far as the store has not followed. seen is a version of the signer that
// Redis is known to have had.
func (s *Service) read(op *Op, seen int64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	var err error
	if op.Kind == KindStatus {
		op.Summary, err = s.summary(ctx, op.Signer, seen)
	} else {
		op.List.Signer = op.Signer
		if op.Page, err = s.list(ctx, op.List, seen); err == nil && op.WithHolders {
			op.Holders, err = s.holders(ctx, op.Page.Rows)
		}
	}
	if op.Err = nil; err != nil {
		op.Err = &UnavailableError{Outcome: NotSent, Err: err}
		s.sayWhy(op)
	}
}

// holders are the names of those who have, or had, some nonces, as far as the store
// knows them.
func (s *Service) holders(ctx context.Context, rows []Row) (map[Principal]string, error) {
	var of []Principal
	for i := range rows {
		if p := rows[i].Holder; p != 0 && !slices.Contains(of, p) {
			of = append(of, p)
		}
	}
	if len(of) == 0 {
		return nil, nil
	}
	return s.store.NamesOf(ctx, of)
}

// summary counts an overdue hold as released, or, where a chain is asked about the
// signer, as what it is.
func (s *Service) summary(ctx context.Context, signer string, seen int64) (Summary, error) {
	sum, err := s.engineSummary(ctx, signer, seen)
	if err == nil && s.cfg.Chain != nil && s.cfg.Chain.Signer(signer) != nil {
		sum.Held, sum.Released, sum.Overdue = sum.Held+sum.Overdue, sum.Released-sum.Overdue, 0
	}
	return sum, err
}

func (s *Service) engineSummary(ctx context.Context, signer string, seen int64) (Summary, error) {
	sum, err := s.store.Summary(ctx, signer)
	if err != nil || sum.Engine != Performance {
		return sum, err
	}
	if s.cfg.Fast == nil {
		return sum, errNoRedis
	}
	fast, err := s.fastSummary(ctx, signer, &sum.Standing, max(seen, sum.Version), sum.Now)
	if err != nil {
		return sum, err
	}
	sum.Next, sum.Floor, sum.Version, sum.LowestHeld = fast.Next, fast.Floor, fast.Version, fast.LowestHeld
	sum.Overdue, sum.Unknown = fast.Overdue, fast.Unknown
	sum.Held, sum.Released, sum.Consumed = fast.Held, fast.Released, fast.Next-fast.Held-fast.Released
	return sum, nil
}

// fastSummary is Redis' summary of a signer that it serves. One of a version below least,
// which was there, is a loss: Redis was set back.
func (s *Service) fastSummary(ctx context.Context, signer string, of *Standing, least int64, now time.Time) (Summary, error) {
	fast, r := s.cfg.Fast.Redis.Summary(ctx, signer, of.Identity, now)
	if r.Verdict == FastDone && fast.Version < least {
		r = FastResult{Verdict: FastLost, Err: fmt.Errorf("signer %s: %w: version %d is there, and %d was", signer, ErrLost, fast.Version, least)}
	}
	if s.trouble(r.Verdict, r.Err); r.Verdict != FastDone {
		return fast, fmt.Errorf("%w: %w", errRedisAway, r.Err)
	}
	return fast, nil
}

// list reads a page. Where Redis serves the signer it is asked first: what it does
// not have then is CONSUMED and in the store for good. A page of such a signer may
// show some rows later than others.
func (s *Service) list(ctx context.Context, q ListQuery, seen int64) (ListPage, error) {
	snaps, err := s.load([]Need{{Signer: q.Signer}})
	switch {
	case err != nil:
		return ListPage{}, err
	case snaps[0].Engine != Performance:
		return s.store.List(ctx, q)
	case s.cfg.Fast == nil:
		return ListPage{}, errNoRedis
	}
	if _, err := s.fastSummary(ctx, q.Signer, &snaps[0].Standing, max(seen, snaps[0].Version), snaps[0].Now); err != nil {
		return ListPage{}, err
	}
	rows, r := s.cfg.Fast.Redis.Rows(ctx, q.Signer, snaps[0].Identity, q.From, q.Limit)
	if s.trouble(r.Verdict, r.Err); r.Verdict != FastDone {
		return ListPage{}, fmt.Errorf("%w: %w", errRedisAway, r.Err)
	}
	all := q
	all.Status, all.Unknown = 0, false
	page, err := s.store.List(ctx, all)
	if err != nil {
		return ListPage{}, err
	}
	return overlay(page, rows, q), nil
}

// overlay puts the rows of Redis over a page of the store, as far as both reach.
func overlay(page ListPage, redis []Row, q ListQuery) ListPage {
	end := page.NextFrom
	if len(redis) == q.Limit && q.Limit > 0 {
		if last := redis[len(redis)-1].Nonce + 1; end < 0 || last < end {
			end = last
		}
	}
	rows := make(map[int64]Row, len(page.Rows)+len(redis))
	for _, row := range page.Rows {
		rows[row.Nonce] = row
	}
	for _, row := range redis {
		// Redis says neither who asked nor when. The store does, once it has followed.
		if old, ok := rows[row.Nonce]; ok && old.Attempt == row.Attempt {
			row.RequestID = old.RequestID
			if old.Status == row.Status {
				row.UpdatedAt = old.UpdatedAt
			}
		}
		rows[row.Nonce] = row
	}
	out := ListPage{NextFrom: end}
	for n, row := range rows {
		if end < 0 || n < end {
			out.Rows = append(out.Rows, row)
		}
	}
	slices.SortFunc(out.Rows, func(a, b Row) int { return compareFree(freeNonce{nonce: a.Nonce}, freeNonce{nonce: b.Nonce}) })
	if len(out.Rows) > q.Limit {
		out.NextFrom = out.Rows[q.Limit].Nonce
		out.Rows = out.Rows[:q.Limit]
	}
	out.Rows = slices.DeleteFunc(out.Rows, func(r Row) bool {
		return q.Status != 0 && r.Status != q.Status || q.Unknown && !r.Unknown()
	})
	return out
}

// load reads signers with the service's timeout.
func (s *Service) load(needs []Need) ([]Snapshot, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	snaps, err := s.store.Load(ctx, needs)
	if err == nil && len(snaps) > 0 {
		s.clock.observe(started, time.Now(), snaps[0].Now)
	}
	return snaps, err
}
