package chain

import (
	"context"
	"time"

	"noncegate/nonce"
)

const (
	// listEvery is between two pages of the store's list of signers that are watched, and listRest
	// before the list is read again from its beginning.
	listEvery = time.Second
	listPage  = 1000
	listRest  = 10 * time.Second
)

// watchlist has this node look after all signers that the store lists of its shards: after a
// take-over no request has used them here yet, and perhaps none will. It also has those be listed no
// more that have nothing open.
func (c *Chains) watchlist(ctx context.Context) {
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	after, rest := int64(0), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Before(rest) {
				continue
			}
		}
		list, err := c.svc.Watched(ctx, after, listPage)
		if err != nil {
			c.list[0].log.Debug("reading which signers are to be watched", "error", err)
			continue
		}
		after = c.tend(ctx, list, after)
		if len(list) < listPage && (len(list) == 0 || after == list[len(list)-1].ID) {
			after, rest = 0, time.Now().Add(listRest)
		}
	}
}

// tend looks after the signers of a page, and returns how far it came: it ends at the first one
// that cannot be looked after now.
func (c *Chains) tend(ctx context.Context, list []nonce.WatchEntry, after int64) int64 {
	for i := range list {
		e := &list[i]
		t, account := c.find(e.Signer)
		if t == nil || !wellFormed(e.Signer) {
			after = e.ID
			continue
		}
		s := t.signer(e.Signer, account)
		if owned := s.owned.Load(); !owned || s.settled() {
			one, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
			err := c.svc.Tend(one, e.Signer)
			cancel()
			if err != nil {
				t.log.Debug("a signer that is to be watched cannot be read", "signer", e.Signer, "error", err)
				return after
			}
		}
		t.report(s, s.adopt(e))
		after = e.ID
	}
	return after
}

// settled reports whether nothing of the signer can change any more by its chain.
func (s *signer) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.next.Load()
	return s.known && next > 0 && next <= s.final && s.gap == nil && !s.untold
}
