package memstore

import (
	"context"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// mine finds the signer if it is the holder's under the token, and the engine serves
// it.
func (db *database) mine(id int64, h lease.Holder, token int64, engine nonce.Engine) *signer {
	sg := db.byID[id]
	if sg == nil || h.Node == "" || sg.owner != h || sg.token != token || sg.standing.Engine != engine {
		return nil
	}
	return sg
}

// Reserve implements nonce.EngineLedger.
func (s *Store) Reserve(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []nonce.ReserveTerm) ([]nonce.Reserved, time.Time, error) {
	var out []nonce.Reserved
	var at time.Time
	err := s.call(ctx, Call{Op: OpReserve, Holder: h, Blocks: terms}, func(now time.Time) error {
		out, at = make([]nonce.Reserved, len(terms)), now
		for i, t := range terms {
			if sg := s.db.mine(t.ID, h, t.Token, nonce.Performance); sg != nil {
				out[i] = sg.reserve(t.Ceiling, now, ttl, grant, longestHold)
			}
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return out, at, nil
}

// reserve raises what may only rise.
func (sg *signer) reserve(ceiling int64, now time.Time, ttl, grant, longestHold time.Duration) nonce.Reserved {
	st := &sg.standing
	st.Ceiling, st.LongestHold = max(st.Ceiling, ceiling), max(st.LongestHold, longestHold)
	if until := now.Add(grant); until.After(st.GrantUntil) {
		st.GrantUntil = until
	}
	sg.expiresAt = now.Add(ttl)
	return nonce.Reserved{Applied: true, Ceiling: st.Ceiling, GrantUntil: st.GrantUntil}
}

// Enter implements nonce.EngineLedger.
func (s *Store) Enter(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []nonce.MoveTerm) ([]nonce.Reserved, time.Time, error) {
	var out []nonce.Reserved
	var at time.Time
	err := s.call(ctx, Call{Op: OpEnter, Holder: h, Moves: terms}, func(now time.Time) error {
		out, at = make([]nonce.Reserved, len(terms)), now
		for i, t := range terms {
			sg := s.db.mine(t.ID, h, t.Token, nonce.Reliable)
			if sg == nil || sg.version != t.Version || now.Before(sg.standing.DoubtUntil) || !s.db.enters(t.Identity) {
				continue
			}
			sg.standing.DoubtUntil = time.Time{}
			sg.standing.Engine, sg.standing.Identity = nonce.Performance, t.Identity
			out[i] = sg.reserve(t.Ceiling, now, ttl, grant, longestHold)
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return out, at, nil
}

// Return implements nonce.EngineLedger.
func (s *Store) Return(ctx context.Context, h lease.Holder, terms []nonce.MoveTerm) ([]bool, error) {
	var out []bool
	err := s.call(ctx, Call{Op: OpReturn, Holder: h, Moves: terms}, func(time.Time) error {
		out = make([]bool, len(terms))
		for i, t := range terms {
			sg := s.db.mine(t.ID, h, t.Token, nonce.Performance)
			if out[i] = sg != nil && sg.version == t.Version; out[i] {
				sg.standing.Engine, sg.standing.Identity = nonce.Reliable, nonce.Identity{}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Lose implements nonce.EngineLedger.
func (s *Store) Lose(ctx context.Context, h lease.Holder, margin time.Duration, terms []nonce.ReserveTerm) ([]bool, error) {
	var out []bool
	err := s.call(ctx, Call{Op: OpLose, Holder: h, Blocks: terms}, func(now time.Time) error {
		out = make([]bool, len(terms))
		for i, t := range terms {
			if sg := s.db.mine(t.ID, h, t.Token, nonce.Performance); sg != nil {
				sg.lose(now, margin)
				out[i] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// lose forgets what Redis had, and doubts what it may have handed out.
func (sg *signer) lose(now time.Time, margin time.Duration) {
	st := &sg.standing
	st.Engine, st.Identity = nonce.Reliable, nonce.Identity{}
	sg.version = nonce.NextEpoch(sg.version)
	for n := sg.next; n < st.Ceiling; n++ {
		sg.rows[n] = nonce.Row{Nonce: n, Status: nonce.Released, Reason: nonce.ReasonInDoubt, Token: sg.token, UpdatedAt: now}
	}
	sg.next = max(sg.next, st.Ceiling)
	st.DoubtBelow, st.DoubtUntil = st.Ceiling, st.GrantUntil.Add(st.LongestHold+margin)
}

// Versions implements nonce.EngineLedger.
func (s *Store) Versions(ctx context.Context, ids []int64) ([]nonce.RowVersion, error) {
	out := make([]nonce.RowVersion, len(ids))
	err := s.call(ctx, Call{Op: OpVersions}, func(time.Time) error {
		for i, id := range ids {
			out[i].Version = -1
			if sg := s.db.byID[id]; sg != nil {
				out[i] = nonce.RowVersion{Version: sg.version, Engine: sg.standing.Engine}
			}
		}
		return nil
	})
	return out, err
}

// Entered implements nonce.EngineLedger.
func (s *Store) Entered(ctx context.Context, after int64, limit int) ([]nonce.EnteredSigner, time.Time, error) {
	var out []nonce.EnteredSigner
	var at time.Time
	err := s.call(ctx, Call{Op: OpEntered}, func(now time.Time) error {
		at = now
		for _, sg := range s.db.inOrder() {
			if sg.id > after && sg.standing.Engine == nonce.Performance && len(out) < limit {
				out = append(out, nonce.EnteredSigner{
					ID: sg.id, Signer: sg.name, Lease: s.db.grant(sg), Standing: sg.standing, Version: sg.version,
				})
			}
		}
		return nil
	})
	return out, at, err
}

// Copy implements nonce.EngineLedger.
func (s *Store) Copy(ctx context.Context, id, afterRow int64, afterID string, limit int) (nonce.SignerCopy, error) {
	page := nonce.SignerCopy{NextRow: afterRow, NextID: afterID}
	err := s.call(ctx, Call{Op: OpCopy}, func(now time.Time) error {
		if sg := s.db.byID[id]; sg != nil {
			page.Snapshot = s.db.load(nonce.Need{Signer: sg.name}, now)
			page.Snapshot.ReleasedMore = false
			sg.copyRows(&page, limit)
			sg.copyRequests(&page, limit)
		}
		return nil
	})
	return page, err
}

func (sg *signer) copyRows(page *nonce.SignerCopy, limit int) {
	from := page.NextRow
	for _, row := range sg.sorted() {
		switch {
		case row.Nonce < from || row.Status == nonce.Consumed:
		case len(page.Rows) == limit:
			page.More = true
			return
		default:
			page.Rows, page.NextRow = append(page.Rows, plain(row)), row.Nonce+1
		}
	}
}

func (sg *signer) copyRequests(page *nonce.SignerCopy, limit int) {
	ids := make([]string, 0, len(sg.requests))
	for id := range sg.requests {
		if id > page.NextID {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if len(ids) > limit {
		ids, page.More = ids[:limit], true
	}
	for _, id := range ids {
		r := sg.requests[id]
		page.Requests, page.NextID = append(page.Requests, nonce.Remembered{Request: r.Request, At: r.createdAt}), id
	}
}
