package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

// sent is a transaction that is kept.
type sent struct {
	nonce.Sent
	look time.Time
}

func (db *database) find(signer string, n int64, hash nonce.TxHash) int {
	return slices.IndexFunc(db.sent, func(t sent) bool { return t.Signer == signer && t.Nonce == n && t.Hash == hash })
}

func (db *database) forget(signer string, below int64) {
	db.sent = slices.DeleteFunc(db.sent, func(t sent) bool { return t.Signer == signer && t.Nonce < below })
}

// KeepSent implements nonce.SentStore.
func (s *Store) KeepSent(ctx context.Context, t nonce.Sent, below int64, wait time.Duration) (was nonce.SentState, err error) {
	err = s.call(ctx, Call{Op: OpSent}, func(db *database, now time.Time) error {
		var of []sent
		for _, k := range db.sent {
			if k.Signer == t.Signer && k.Nonce >= below {
				of = append(of, k)
			}
		}
		size := len(t.Raw)
		for _, k := range of {
			size += len(k.Raw)
		}
		t.Raw, t.State = bytes.Clone(t.Raw), nonce.SentOpen
		i := db.find(t.Signer, t.Nonce, t.Hash)
		switch {
		case i >= 0:
			k := &db.sent[i]
			if was = k.State; was == nonce.SentRefused {
				k.look = now.Add(wait)
			}
			if was != nonce.SentTaken {
				k.State, k.Raw = nonce.SentOpen, t.Raw
			}
		case len(of) >= nonce.MaxSent || size > nonce.MaxSentBytes:
			return nonce.ErrSentFull
		default:
			db.sent = append(db.sent, sent{t, now.Add(wait)})
		}
		db.forget(t.Signer, below)
		return nil
	})
	return was, err
}

// SettleSent implements nonce.SentStore.
func (s *Store) SettleSent(ctx context.Context, signer string, n int64, hash nonce.TxHash, state nonce.SentState, wait time.Duration) error {
	return s.call(ctx, Call{Op: OpSent}, func(db *database, now time.Time) error {
		if i := db.find(signer, n, hash); i >= 0 {
			db.sent[i].State, db.sent[i].look = state, now.Add(wait)
			if state != nonce.SentOpen {
				db.sent[i].Raw = nil
			}
		}
		return nil
	})
}

// DropSent implements nonce.SentStore.
func (s *Store) DropSent(ctx context.Context, signer string, n int64, hash nonce.TxHash) error {
	return s.call(ctx, Call{Op: OpSent}, func(db *database, _ time.Time) error {
		if i := db.find(signer, n, hash); i >= 0 {
			db.sent = slices.Delete(db.sent, i, i+1)
		}
		return nil
	})
}

// ForgetSent implements nonce.SentStore.
func (s *Store) ForgetSent(ctx context.Context, signer string, below int64) error {
	return s.call(ctx, Call{Op: OpSent}, func(db *database, _ time.Time) error {
		db.forget(signer, below)
		return nil
	})
}

// SentOf implements nonce.SentStore.
func (s *Store) SentOf(ctx context.Context, signer string, from int64) (all []nonce.Sent, err error) {
	err = s.call(ctx, Call{Op: OpSent}, func(db *database, _ time.Time) error {
		for _, t := range db.sent {
			if t.Signer == signer && t.Nonce >= from {
				t.Raw = nil
				all = append(all, t.Sent)
			}
		}
		slices.SortFunc(all, func(a, b nonce.Sent) int {
			return cmp.Or(cmp.Compare(a.Nonce, b.Nonce), bytes.Compare(a.Hash[:], b.Hash[:]))
		})
		return nil
	})
	return all, err
}

// DueSent implements nonce.SentStore.
func (s *Store) DueSent(ctx context.Context, shards []int, limit int) (all []nonce.Sent, err error) {
	err = s.call(ctx, Call{Op: OpSent, Shards: shards}, func(db *database, now time.Time) error {
		var due []sent
		for _, t := range db.sent {
			if !t.look.After(now) && slices.Contains(shards, nonce.ShardOf(t.Signer, s.shards)) {
				due = append(due, t)
			}
		}
		slices.SortStableFunc(due, func(a, b sent) int { return a.look.Compare(b.look) })
		for _, t := range due[:min(len(due), limit)] {
			t.Raw = bytes.Clone(t.Raw)
			all = append(all, t.Sent)
		}
		return nil
	})
	return all, err
}

// DelaySent implements nonce.SentStore.
func (s *Store) DelaySent(ctx context.Context, all []nonce.Sent, wait time.Duration) error {
	return s.call(ctx, Call{Op: OpSent}, func(db *database, now time.Time) error {
		for i := range all {
			if k := db.find(all[i].Signer, all[i].Nonce, all[i].Hash); k >= 0 {
				db.sent[k].look = now.Add(wait)
			}
		}
		return nil
	})
}

// SentTotals implements nonce.SentStore.
func (s *Store) SentTotals(ctx context.Context) (rows, size int64, err error) {
	err = s.call(ctx, Call{Op: OpSent}, func(db *database, _ time.Time) error {
		for _, t := range db.sent {
			rows, size = rows+1, size+int64(len(t.Raw))
		}
		return nil
	})
	return rows, size, err
}
