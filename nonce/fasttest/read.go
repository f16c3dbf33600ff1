package fasttest

import (
	"slices"
	"time"

	"noncegate/nonce"
)

// read runs one script.
func (s *Server) read(now time.Time, r *nonce.FastRead) nonce.FastSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, res := s.check(&r.FastBelief, r.TakeOver)
	if res.Verdict != nonce.FastDone {
		return nonce.FastSnapshot{Verdict: res.Verdict, Err: res.Err}
	}
	e.serves = e.serves || r.Serve
	snap := nonce.Snapshot{
		Signer: r.Signer, Exists: true, ID: e.id, Next: e.next, Floor: e.floor, Version: e.version, Held: e.held, Now: now,
	}
	wanted := slices.Clone(r.Need.Nonces)
	rows := e.sorted()
	for _, row := range rows {
		if row.Status != nonce.Released || row.Nonce < e.floor {
			continue
		}
		if snap.ReleasedMore = len(snap.Released) == r.Need.Released; snap.ReleasedMore {
			break
		}
		snap.Released = append(snap.Released, row.Nonce)
	}
	snap.Due = due(rows, now, r.Need.Due)
	for _, row := range snap.Due {
		wanted = append(wanted, row.Nonce)
	}
	for _, id := range r.Need.RequestIDs {
		if q, ok := e.requests[id]; ok {
			snap.Requests = append(snap.Requests, q.Request)
			wanted = append(wanted, q.Nonces...)
		}
	}
	wanted = append(wanted, snap.Released...)
	slices.Sort(wanted)
	for _, n := range slices.Compact(wanted) {
		if row, ok := e.rows[n]; ok {
			snap.Rows = append(snap.Rows, row.Row)
		}
	}
	return nonce.FastSnapshot{Snapshot: snap}
}

func overdue(r *nonce.Row, now time.Time) bool {
	return r.Status == nonce.Held && !r.HeldUntil.After(now)
}

// due returns up to limit overdue holds, earliest deadline first.
func due(rows []nonce.Row, now time.Time, limit int) []nonce.Row {
	all := slices.DeleteFunc(slices.Clone(rows), func(r nonce.Row) bool { return !overdue(&r, now) })
	slices.SortStableFunc(all, func(a, b nonce.Row) int { return a.HeldUntil.Compare(b.HeldUntil) })
	return all[:min(limit, len(all))]
}

// seed takes one piece of a copy. A live copy is not replaced by an older one of the
// same owner: that is a piece that was under way for long.
func (s *Server) seed(p *nonce.SeedPiece) nonce.FastResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.data.signers[p.Signer]
	switch {
	case e != nil && e.token > p.Token, e != nil && e.token == p.Token && e.whole && e.version > p.Version:
		return nonce.FastResult{Verdict: nonce.FastFenced, Err: nonce.ErrLost}
	case p.Nth == 0:
		e = &entry{
			id: p.ID, token: p.Token, copyOf: p.Version, rows: map[int64]row{}, requests: map[string]nonce.Remembered{},
		}
		s.data.signers[p.Signer] = e
	case e == nil || e.whole || e.token != p.Token || e.copyOf != p.Version || e.pieces != p.Nth:
		return lost("no copy of %q, version %d, is under way", p.Signer, p.Version)
	}
	e.pieces++
	for _, r := range p.Rows {
		e.rows[r.Nonce] = row{r, p.Version}
	}
	for _, q := range p.Requests {
		e.requests[q.ID] = q
	}
	if p.Last {
		e.version, e.next, e.floor, e.held, e.whole = p.Version, p.Next, p.Floor, p.Held, true
	}
	return nonce.FastResult{}
}

func (s *Server) forget(b *nonce.FastBelief) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.data.signers[b.Signer]; e != nil && e.token <= b.Token {
		delete(s.data.signers, b.Signer)
	}
}

func (s *Server) summary(signer string, now time.Time) (nonce.Summary, nonce.FastResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := nonce.Summary{LowestHeld: -1}
	e := s.data.signers[signer]
	if e == nil || !e.whole {
		return sum, lost("the keys of %q are missing", signer)
	}
	sum.Exists, sum.Next, sum.Floor, sum.Version = true, e.next, e.floor, e.version
	for _, r := range e.sorted() {
		switch {
		case r.Status == nonce.Held && (r.Reason == nonce.ReasonUnknown || !overdue(&r, now)):
			if sum.Held == 0 {
				sum.LowestHeld = r.Nonce
			}
			if sum.Held++; r.Reason == nonce.ReasonUnknown {
				sum.Unknown++
			}
		case r.Status != nonce.Consumed && r.Nonce >= e.floor:
			if sum.Released++; r.Status == nonce.Held {
				sum.Overdue++
			}
		}
	}
	sum.Consumed = sum.Next - sum.Held - sum.Released
	return sum, nonce.FastResult{}
}

func (s *Server) rows(signer string, from int64, limit int) ([]nonce.Row, nonce.FastResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.data.signers[signer]
	if e == nil || !e.whole {
		return nil, lost("the keys of %q are missing", signer)
	}
	rows := slices.DeleteFunc(e.sorted(), func(r nonce.Row) bool { return r.Nonce < from })
	return rows[:min(limit, len(rows))], nonce.FastResult{}
}
