package memstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Prunable implements nonce.Pruner.
func (s *Store) Prunable(ctx context.Context, q nonce.PruneQuery) (nonce.PrunePage, error) {
	var page nonce.PrunePage
	err := s.call(ctx, Call{Op: OpPrunable}, func(now time.Time) error {
		page.Now = now
		walked := 0
		for _, sg := range s.db.inOrder() {
			if sg.id <= q.After {
				continue
			}
			if walked == q.Signers || len(page.Found) == q.Found {
				return nil
			}
			walked++
			page.After = sg.id
			if sg.standing.Engine != nonce.Reliable {
				continue
			}
			if old := sg.old(q.Rows, now.Add(-q.Age)); len(old) > 0 {
				page.Found = append(page.Found, nonce.Prunable{
					ID: sg.id, Signer: sg.name, Version: sg.version, Lease: s.db.grant(sg), Rows: len(old),
				})
			}
		}
		page.After = 0
		return nil
	})
	return page, err
}

func (db *database) inOrder() []*signer {
	all := make([]*signer, 0, len(db.signers))
	for _, sg := range db.signers {
		all = append(all, sg)
	}
	slices.SortFunc(all, func(a, b *signer) int { return cmp.Compare(a.id, b.id) })
	return all
}

// old returns the nonces of the lowest rows, at most limit, that are CONSUMED and
// were last written before.
func (sg *signer) old(limit int, before time.Time) (nonces []int64) {
	for _, row := range sg.sorted() {
		if len(nonces) == limit || row.Status != nonce.Consumed || !row.UpdatedAt.Before(before) {
			break
		}
		nonces = append(nonces, row.Nonce)
	}
	return nonces
}

// Prune implements nonce.Pruner.
func (s *Store) Prune(ctx context.Context, h lease.Holder, p nonce.Pruning) ([]nonce.Pruned, error) {
	var results []nonce.Pruned
	err := s.call(ctx, Call{Op: OpConsumed, Holder: h, Pieces: p.Pieces}, func(now time.Time) error {
		locker := h == lease.Holder{}
		if !locker && p.Epoch != s.epoch {
			return &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("the store has become another one")}
		}
		results = make([]nonce.Pruned, len(p.Pieces))
		for i, piece := range p.Pieces {
			sg := s.db.byID[piece.ID]
			if sg == nil || sg.standing.Engine != nonce.Reliable || sg.version != piece.Version || s.rowLocked(sg) {
				continue
			}
			if !locker && (sg.owner != h || sg.token != piece.Token) {
				continue
			}
			results[i] = sg.prune(sg.old(piece.Rows, now.Add(-p.Age)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// prune deletes the rows of these nonces, the lowest there are.
func (sg *signer) prune(nonces []int64) nonce.Pruned {
	if len(nonces) == 0 {
		return nonce.Pruned{}
	}
	for _, n := range nonces {
		delete(sg.rows, n)
	}
	sg.pruned = nonces[len(nonces)-1] + 1
	sg.version++
	return nonce.Pruned{Applied: true, Below: sg.pruned, Rows: len(nonces)}
}
