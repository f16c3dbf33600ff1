package memstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Acquire implements nonce.Ledger.
func (s *Store) Acquire(ctx context.Context, h lease.Holder, ttl time.Duration, needs []nonce.Need) ([]nonce.Snapshot, error) {
	var out []nonce.Snapshot
	err := s.call(ctx, Call{Op: OpAcquire, Holder: h, Needs: needs}, func(now time.Time) error {
		for _, need := range needs {
			sg := s.db.create(need.Signer)
			was := sg.owner.Node
			acquired := sg.acquire(h, ttl, now)
			snap := s.db.load(need, now)
			if snap.Acquired = acquired; acquired && was != h.Node {
				snap.TookOverFrom = was
			}
			out = append(out, snap)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (sg *signer) acquire(h lease.Holder, ttl time.Duration, now time.Time) bool {
	free := sg.owner.Node == "" || !sg.expiresAt.After(now)
	mine := sg.owner.Node == h.Node && sg.owner.Incarnation <= h.Incarnation
	if !free && !mine {
		return false
	}
	sg.owner, sg.expiresAt = h, now.Add(ttl)
	sg.token++
	return true
}

// Commit implements nonce.Ledger: first everything is compared, then everything
// is written. No two changes may be of one signer.
func (s *Store) Commit(ctx context.Context, h lease.Holder, ttl time.Duration, changes []nonce.Change) (nonce.CommitResult, error) {
	var res nonce.CommitResult
	err := s.call(ctx, Call{Op: OpCommit, Holder: h, Changes: changes}, func(now time.Time) error {
		if len(changes) > 0 && changes[0].Epoch != s.epoch {
			return &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("the store has become another one")}
		}
		res = nonce.CommitResult{Applied: make([]bool, len(changes)), Now: now}
		for i, c := range changes {
			sg := s.db.byID[c.ID]
			res.Applied[i] = sg != nil && h.Node != "" && sg.owner == h && sg.token == c.Token && sg.version == c.Version &&
				sg.standing.Engine == nonce.Reliable && !sg.knows(c.Requests) && !s.rowLocked(sg)
			if !res.Applied[i] || c.Check {
				continue
			}
			if err := sg.admits(c); err != nil {
				return err
			}
		}
		for i, c := range changes {
			if res.Applied[i] && !c.Check {
				sg := s.db.byID[c.ID]
				sg.apply(c, now)
				sg.expiresAt = now.Add(ttl)
			}
		}
		return nil
	})
	if err != nil {
		return nonce.CommitResult{}, err
	}
	return res, nil
}

func (s *Store) rowLocked(sg *signer) bool {
	return s.hooks.RowLocked != nil && s.hooks.RowLocked(sg.name)
}

// Locked implements nonce.Locker. plan runs under the store's lock and must not
// use the store.
func (s *Store) Locked(ctx context.Context, need nonce.Need, plan func(nonce.Snapshot) (nonce.Change, error)) (time.Time, error) {
	var at time.Time
	err := s.call(ctx, Call{Op: OpLocked, Needs: []nonce.Need{need}}, func(now time.Time) error {
		at = now
		sg := s.db.create(need.Signer)
		if sg.standing.Engine != nonce.Reliable {
			return &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrOtherEngine}
		}
		c, err := plan(s.db.load(need, now))
		if err != nil || c.Check {
			return err
		}
		if c.Version != sg.version || sg.knows(c.Requests) {
			return aborted("signer %q is not as the plan says", sg.name)
		}
		if err := sg.admits(c); err != nil {
			return err
		}
		c.Token = 0
		sg.apply(c, now)
		return nil
	})
	if err != nil {
		return time.Time{}, err
	}
	return at, nil
}

// knows reports whether one of the requests is remembered.
func (sg *signer) knows(requests []nonce.Request) bool {
	return slices.ContainsFunc(requests, func(r nonce.Request) bool { _, ok := sg.requests[r.ID]; return ok })
}

// admits compares the rows with what the change says of them.
func (sg *signer) admits(c nonce.Change) error {
	seen := map[string]bool{}
	for _, r := range c.Requests {
		if seen[r.ID] {
			return aborted("request %q of signer %q is there twice", r.ID, sg.name)
		}
		seen[r.ID] = true
	}
	for _, rc := range c.Rows {
		row, exists := sg.rows[rc.Nonce]
		if rc.Fresh && exists || !rc.Fresh && (row.Status != rc.FromStatus || row.Attempt != rc.FromAttempt) {
			return aborted("nonce %d of signer %q is %v, attempt %d", rc.Nonce, sg.name, row.Status, row.Attempt)
		}
		if exists && rc.Status == nonce.Held && !holdable(row, rc.Attempt, rc.Reason) {
			return aborted("nonce %d of signer %q is %v, attempt %d, which no hold of attempt %d overwrites", rc.Nonce, sg.name, row.Status, row.Attempt, rc.Attempt)
		}
	}
	return nil
}

// holdable reports whether a hold may overwrite the row: a RELEASED one, the same hold
// that goes on, or by a repair.
func holdable(row nonce.Row, attempt int64, reason string) bool {
	return row.Status == nonce.Released || row.Status == nonce.Held && attempt == row.Attempt ||
		attempt > row.Attempt && reason == nonce.ReasonRepair
}

// apply writes the change, whose conditions hold.
func (sg *signer) apply(c nonce.Change, now time.Time) {
	sg.next, sg.floor, sg.held = c.Next, c.Floor, c.Held
	sg.version++
	for _, rc := range c.Rows {
		row := nonce.Row{
			Nonce: rc.Nonce, Status: rc.Status, Attempt: rc.Attempt, Token: c.Token,
			Holder: rc.Holder, TxHash: rc.TxHash, Replaced: rc.Replaced, Reason: rc.Reason, UpdatedAt: now, RequestID: requestOf(c.Requests, rc),
		}
		if old := sg.rows[rc.Nonce]; row.RequestID == "" && old.Attempt == rc.Attempt {
			row.RequestID = old.RequestID
		}
		if rc.Status == nonce.Held {
			row.HeldUntil = now.Add(rc.Hold)
		}
		sg.rows[rc.Nonce] = row
	}
	for n, row := range sg.rows {
		if c.BelowFloor && n < c.Floor && row.Status == nonce.Released {
			row.Status, row.Reason, row.Token, row.UpdatedAt = nonce.Consumed, nonce.ReasonBelowFloor, c.Token, now
			sg.rows[n] = row
		}
	}
	for _, r := range c.Requests {
		r.Nonces, r.Attempts = slices.Clone(r.Nonces), slices.Clone(r.Attempts)
		sg.requests[r.ID] = request{Request: r, createdAt: now}
	}
}

// requestOf finds the request that the row is handed out to.
func requestOf(requests []nonce.Request, rc nonce.RowChange) string {
	for _, r := range requests {
		if i := slices.Index(r.Nonces, rc.Nonce); i >= 0 && r.Attempts[i] == rc.Attempt {
			return r.ID
		}
	}
	return ""
}

// Release implements nonce.Ledger.
func (s *Store) Release(ctx context.Context, h lease.Holder, terms []nonce.ReleaseTerm) (int, error) {
	released := 0
	err := s.call(ctx, Call{Op: OpRelease, Holder: h, Terms: terms}, func(now time.Time) error {
		for _, t := range terms {
			if sg := s.db.byID[t.ID]; sg != nil && sg.owner == h && sg.token == t.Token {
				sg.owner, sg.expiresAt = lease.Holder{}, now
				sg.token++
				released++
			}
		}
		return nil
	})
	return released, err
}
