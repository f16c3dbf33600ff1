package service

import (
	"context"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// read answers status and list from the store, without ownership.
func (s *Service) read(ctx context.Context, op *nonce.Op) (err error) {
	clearResult(op)
	if op.Kind == nonce.KindStatus {
		op.Summary, err = s.summary(ctx, op.Signer)
		return err
	}
	return s.readList(ctx, op)
}

// endRead ends a task that was read, or could not be.
func (t *task) endRead(err error) {
	if err != nil {
		t.refuse(&nonce.UnavailableError{Outcome: nonce.NotSent, Err: err})
		return
	}
	t.end(nil)
}

func (s *Service) readList(ctx context.Context, op *nonce.Op) (err error) {
	op.List.Signer = op.Signer
	if op.Page, err = s.store.List(ctx, op.List); err != nil || !op.WithHolders {
		return err
	}
	var of []nonce.Principal
	for i := range op.Page.Rows {
		if p := op.Page.Rows[i].Holder; p != 0 && !slices.Contains(of, p) {
			of = append(of, p)
		}
	}
	if len(of) > 0 {
		op.Holders, err = s.store.NamesOf(ctx, of)
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
	sum.Lease, sum.Now, sum.Performance = s.ownership(&l.Shard), loaded.Now, l.Shard.Performance
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
