package history

import (
	"cmp"
	"slices"
)

// checkOrder: calls of one connection for one signer take effect in the order in which they were sent. New nonces tell, because
// they come from a cursor that only rises; and so does a release that was accepted although the nonce was consumed by the call
// before it.
func (s *signer) checkOrder(r *Report) {
	byConn := make(map[int64][]*Call)
	for _, c := range s.calls {
		if c.Conn != 0 && c.Outcome == Happened {
			byConn[c.Conn] = append(byConn[c.Conn], c)
		}
	}
	for _, calls := range byConn {
		slices.SortStableFunc(calls, func(a, b *Call) int { return cmp.Compare(a.Seq, b.Seq) })
		last := Given{Nonce: -1}
		used := make(map[int64]bool)
		for _, c := range calls {
			switch {
			case c.Kind == Allocate && (c.RequestID == "" || len(s.requests[c.RequestID]) == 1):
				for _, g := range c.Nonces {
					if g.Attempt == 1 && g.Nonce < last.Nonce {
						r.add(disorder, s.name, "client %d was given new nonce %d by %s after it was given %d by the call before", c.Client, g.Nonce, c.Node, last.Nonce)
					}
					if g.Attempt == 1 {
						last = g
					}
				}
			case c.Kind == MarkUsed:
				used[c.Nonce] = true
			case c.Kind == MarkRecyclable && c.State == Released && used[c.Nonce]:
				r.add(disorder, s.name, "client %d consumed nonce %d, and the release behind it was accepted by %s", c.Client, c.Nonce, c.Node)
			}
		}
	}
}
