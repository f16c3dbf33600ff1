package history

import (
	"cmp"
	"slices"
)

// signer is what a history says about one signer.
type signer struct {
	name    string
	calls   []*Call // in order of Start
	samples []Sample
	stored  *StoredSigner // nil: not in Final, or no Final

	nonces   map[int64]*nonce
	requests map[string][]*Call // allocates by request id
	final    bool               // there is a Final
	began    int64              // BeganAt
	shifts   []Shift
	grace    int64  // GraceMs
	behind   bool   // RowsBehind
	losses   []Loss // in order of epoch
}

// nonce is what a history says about one nonce of a signer, in order of Start.
type nonce struct {
	given []handOut
	used  []*Call // markUsed that happened or may have
	freed []*Call // markRecyclable that happened or may have
}

// handOut is one nonce of an allocate that happened.
type handOut struct {
	call    *Call
	attempt int64
}

// index sorts the calls by signer and counts them.
func index(h *History, r *Report) []*signer {
	byName := make(map[string]*signer)
	get := func(name string) *signer {
		s, ok := byName[name]
		if !ok {
			s = &signer{name: name, nonces: make(map[int64]*nonce), requests: make(map[string][]*Call), final: h.Final != nil, began: h.BeganAt, shifts: h.Shifts, grace: h.GraceMs, behind: h.RowsBehind}
			byName[name] = s
		}
		return s
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		r.count(c)
		s := get(c.Signer)
		s.calls = append(s.calls, c)
	}
	for _, sample := range h.Samples {
		s := get(sample.Signer)
		s.samples = append(s.samples, sample)
	}
	for _, l := range h.Losses {
		s := get(l.Signer)
		s.losses = append(s.losses, l)
	}
	if h.Final != nil {
		for i := range h.Final.Signers {
			get(h.Final.Signers[i].Signer).stored = &h.Final.Signers[i]
		}
	}
	signers := make([]*signer, 0, len(byName))
	for _, s := range byName {
		s.sort()
		signers = append(signers, s)
	}
	slices.SortFunc(signers, func(a, b *signer) int { return cmp.Compare(a.name, b.name) })
	return signers
}

func (r *Report) count(c *Call) {
	switch c.Outcome {
	case Happened:
		r.Acknowledged++
		return
	case Refused:
		r.Refused++
	case Unknown:
		r.Unknown++
	}
	r.Reasons[c.Reason]++
	if c.Reason == "internal" {
		r.add(Alarm, c.Signer, "%s answered internal: %s", c.Node, c.Detail)
	}
}

// sort orders the calls and sorts them by what they are about.
func (s *signer) sort() {
	slices.SortStableFunc(s.calls, func(a, b *Call) int { return cmp.Compare(a.Start, b.Start) })
	for _, c := range s.calls {
		if c.Kind == Allocate && c.RequestID != "" {
			s.requests[c.RequestID] = append(s.requests[c.RequestID], c)
		}
		if c.Outcome == Refused {
			continue
		}
		switch c.Kind {
		case Allocate:
			for _, g := range c.Nonces {
				n := s.nonce(g.Nonce)
				n.given = append(n.given, handOut{c, g.Attempt})
			}
		case MarkUsed:
			n := s.nonce(c.Nonce)
			n.used = append(n.used, c)
		case MarkRecyclable:
			n := s.nonce(c.Nonce)
			n.freed = append(n.freed, c)
		case SetFloor, Status:
		}
	}
}

func (s *signer) nonce(n int64) *nonce {
	found, ok := s.nonces[n]
	if !ok {
		found = new(nonce)
		s.nonces[n] = found
	}
	return found
}

// committedAt is the store's clock at the commit of an allocate that happened.
func (c *Call) committedAt() int64 { return c.HeldUntil - c.HoldMs }

// before reports whether a had ended when b began.
func before(a, b *Call) bool { return a.End < b.Start }
