package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// read answers status and list from the store, without ownership.
func (s *Service) read(ctx context.Context, q *nonce.Request, r *nonce.Result) (err error) {
	*r = nonce.Result{}
	switch q.Kind {
	case nonce.KindStatus:
		r.Summary, err = s.summary(ctx, q.Signer)
		return err
	case nonce.KindList:
		return s.readList(ctx, q, r)
	}
	return fmt.Errorf("%w: a %s is not read", nonce.ErrInternal, q.Kind)
}

// endRead ends a task that was read, or could not be.
func (t *task) endRead(err error) {
	if err != nil {
		t.refuse(&nonce.UnavailableError{Outcome: nonce.NotSent, Err: err})
		return
	}
	t.end(nil)
}

func (s *Service) readList(ctx context.Context, q *nonce.Request, r *nonce.Result) (err error) {
	list := q.List
	list.Signer = q.Signer
	if r.Page, err = s.store.List(ctx, list); err != nil || !q.WithHolders {
		return err
	}
	var of []nonce.Principal
	for i := range r.Page.Rows {
		if p := r.Page.Rows[i].Holder; p != 0 && !slices.Contains(of, p) {
			of = append(of, p)
		}
	}
	if len(of) > 0 {
		r.Holders, err = s.store.NamesOf(ctx, of)
	}
	return err
}

// summary reads one signer.
func (s *Service) summary(ctx context.Context, signer string) (nonce.Summary, error) {
	loaded, err := s.loadBy(ctx, []nonce.SignerNeed{{Signer: signer}})
	if err != nil {
		return nonce.Summary{}, err
	}
	l := &loaded.Signers[0]
	if l.Err != nil {
		return nonce.Summary{}, ErrUnreadable
	}
	sum := s.cfg.Rules.Summary(&rules.Input{Signer: l.Signer, Now: exactly(loaded.Now), Chain: s.chainOf(signer)})
	sum.Lease, sum.Now, sum.Performance = s.table.Fleet().Ownership(&l.Shard), loaded.Now, l.Shard.Performance
	return sum, nil
}

// exactly is a clock that was just read.
func exactly(now time.Time) nonce.Clock {
	return nonce.Clock{Earliest: now.UnixMilli(), Latest: now.UnixMilli() + 1}
}

// chainOf is what is known of a signer's chain, nil where none is configured for it.
func (s *Service) chainOf(signer string) nonce.ChainSigner {
	if s.cfg.Chain == nil {
		return nil
	}
	return s.cfg.Chain.Signer(signer)
}
