package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// signer is what a history says about one signer, and where what is wrong with it goes.
type signer struct {
	*History
	*Report
	limits Limits

	name    string
	calls   []*Call // in order of Start
	samples []Sample
	losses  []Loss        // in order of epoch
	stored  *StoredSigner // nil: not in Final, or no Final

	lostSome bool // a setback of the store took something of it, or made a gateway stop it

	nonces   map[int64]*nonce
	requests map[string][]*Call // allocates by request id
}

func (s *signer) wrong(rule Rule, format string, args ...any) { s.add(rule, s.name, format, args...) }

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

func index(h *History, r *Report, limits Limits) []*signer {
	byName := make(map[string]*signer)
	get := func(name string) *signer {
		if byName[name] == nil {
			byName[name] = &signer{History: h, Report: r, limits: limits, name: name, nonces: make(map[int64]*nonce), requests: make(map[string][]*Call)}
		}
		return byName[name]
	}
	calls := slices.Clone(h.Calls) // isAgain changes some
	for i := range calls {
		s := get(calls[i].Signer)
		s.calls = append(s.calls, &calls[i])
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
	signers := slices.Collect(maps.Values(byName))
	for _, s := range signers {
		s.sort()
	}
	slices.SortFunc(signers, func(a, b *signer) int { return cmp.Compare(a.name, b.name) })
	return signers
}

// sort orders the calls, counts them and sorts them by what they are about.
func (s *signer) sort() {
	slices.SortStableFunc(s.calls, func(a, b *Call) int { return cmp.Compare(a.Start, b.Start) })
	for _, c := range s.calls {
		if c.Kind == Allocate && c.RequestID != "" {
			s.requests[c.RequestID] = append(s.requests[c.RequestID], c)
		}
	}
	for _, c := range slices.DeleteFunc(slices.Clone(s.calls), func(c *Call) bool { return !s.isAgain(c) }) {
		c.Outcome, c.Reason = Unknown, "conflict of its own"
	}
	for _, c := range s.calls {
		s.count(c)
		if c.Outcome == Refused {
			continue
		}
		for _, g := range c.Nonces {
			s.nonce(g.Nonce).given = append(s.nonce(g.Nonce).given, handOut{c, g.Attempt})
		}
		switch n := s.nonce(c.Nonce); c.Kind {
		case MarkUsed:
			n.used = append(n.used, c)
		case MarkRecyclable:
			n.freed = append(n.freed, c)
		case Allocate, SetFloor, Status:
		}
	}
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

// nonce is what is said about one; it may be nothing yet.
func (s *signer) nonce(n int64) *nonce {
	if s.nonces[n] == nil {
		s.nonces[n] = new(nonce)
	}
	return s.nonces[n]
}

// committedAt is the store's clock at the commit of an allocate that happened.
func (c *Call) committedAt() int64 { return c.HeldUntil - c.HoldMs }

// before reports whether a had ended when b began.
func before(a, b *Call) bool { return a.End < b.Start }

// isAgain reports whether a call was told that its own hold has ended. A node that was not answered, by another node or by the store,
// asks again by the request id. When the first try was done, and its hold has ended before the second, the client's only call is told
// so: a conflict, which does not say that nothing happened. Such a call is one of unknown outcome.
func (s *signer) isAgain(c *Call) bool {
	ended := c.Kind == Allocate && c.Outcome == Refused && c.Reason == "conflict" && strings.Contains(c.Detail, "has ended")
	return ended && !slices.ContainsFunc(s.requests[c.RequestID], func(o *Call) bool { return o.Outcome != Refused && o.Start <= c.End })
}
