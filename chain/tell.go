package chain

import (
	"context"
	"fmt"
	"strings"

	"noncegate/nonce"
	"noncegate/wire"
)

// Refuses implements nonce.Chain: the nonces of a signer whose chain is not configured would begin
// at 0, whatever the account has sent.
func (c *Chains) Refuses(name string) string {
	id := name[:max(0, strings.LastIndexByte(name, ':'))]
	if c.cfg.Others != OthersRefused && c.cfg.Others != OthersWarned || !strings.HasPrefix(id, "eip155:") || c.byID[id] != nil {
		return ""
	}
	known := make([]string, len(c.list))
	for i, t := range c.list {
		known[i] = t.chain.ID()
	}
	why := fmt.Sprintf("no chain %s is configured, so that nobody knows where the account stands; there is %s", id, strings.Join(known, ", "))
	if c.cfg.Others == OthersRefused {
		return why
	}
	c.seldom.Do(func() { c.log.Warn(why, "signer", name) })
	return ""
}

// Tell implements nonce.Chain. Where the owner of the signer cannot be asked, or has not looked yet, what
// the store lists is told, with what this node knows.
func (c *Chains) Tell(q *nonce.Request, r *nonce.Result) {
	if q.Kind == nonce.KindRepair {
		if r.Offer == nil {
			r.Offer = c.offer(q.Signer, r.Nonces[0])
		}
		return
	}
	node, url, mine := c.svc.OwnerOf(q.Signer)
	t, _ := c.find(q.Signer)
	switch {
	case q.ChainOnly && !mine:
		r.Err = &nonce.NotOwnerError{Node: node, URL: url}
	case t == nil:
		r.Said = new(nonce.ChainSaid)
	case mine && c.found(q.Signer):
		r.Said = c.said(q, r, nil)
	case mine:
		r.Said = c.said(q, r, c.listed(t, q.Signer, true))
	default:
		if c.cfg.Ask != nil {
			if said, err := c.cfg.Ask(node, url, *q); err == nil {
				r.Said = said
				return
			}
		}
		r.Said = c.said(q, r, c.listed(t, q.Signer, false))
		r.Said.Partial = true
	}
}

// offer is what a nonce's transaction pays, as far as the nodes have shown it.
func (c *Chains) offer(name string, n int64) *Offer {
	s := c.known(name)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.notes[n]
	if k == nil || k.offer == (Offer{}) {
		return nil
	}
	o := k.offer
	return &o
}

// found reports whether this node has looked, as the owner of a signer, what keeps its lowest open
// nonce from being mined, so that State says it. A new owner has not, for as long as it takes; the
// store has what the owner before it found.
func (c *Chains) found(name string) bool {
	s := c.known(name)
	if s == nil || !s.owned.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gap != nil {
		return s.gapTold
	}
	return s.trouble.Kind != nonce.WatchAsIs || s.known && s.next.Load() > 0 && s.next.Load() <= s.mined
}

// said is what this node knows, and the trouble that the store lists; nil: it lists none.
func (c *Chains) said(q *nonce.Request, r *nonce.Result, trouble *nonce.Gap) *nonce.ChainSaid {
	if q.Kind == nonce.KindList {
		return &nonce.ChainSaid{Words: c.saidOfRows(q.Signer, r.Page.Rows, trouble)}
	}
	c.LookAt(q.Signer, r.Summary.Next)
	st, known := c.State(q.Signer)
	switch {
	case trouble != nil && (!known || trouble.Nonce >= st.Mined):
		if !known {
			st.Mined = trouble.Nonce // it was the lowest unused one
		}
		st.Trouble = trouble
	case !known:
		return new(nonce.ChainSaid)
	}
	return &nonce.ChainSaid{State: &st}
}

// saidOfRows is what is known of each row, as far as anything is. A recorded transaction that the owner
// found in no pool is dropped, whatever this node has not looked for.
func (c *Chains) saidOfRows(name string, rows []nonce.Row, trouble *nonce.Gap) (words []nonce.ChainWord) {
	for i, word := range c.Words(name, rows) {
		row := &rows[i]
		if lost := trouble != nil && trouble.Kind != nonce.WatchStuck && trouble.Nonce == row.Nonce; lost && word == wire.ChainSent {
			word = wire.ChainDropped
		}
		if word != "" {
			words = append(words, nonce.ChainWord{Nonce: row.Nonce, Attempt: row.Attempt, Word: word})
		}
	}
	return words
}

// listed is what the owner of a signer has found, as the store lists it; nil: nothing, or that
// cannot be read. A node that owns the signer now takes it over.
func (c *Chains) listed(t *Tracker, name string, mine bool) *nonce.Gap {
	ctx, cancel := context.WithTimeout(context.Background(), t.cfg.Timeout)
	defer cancel()
	rows, err := c.cfg.Store.Signers(ctx, nonce.SignersQuery{Names: []string{name}, Limit: 1})
	if err != nil || len(rows) == 0 || !rows[0].Watch.Kind.Trouble() {
		return nil
	}
	is := rows[0].Watch
	if s := c.known(name); mine && s != nil {
		t.report(s, s.adopt(&nonce.WatchEntry{Signer: name, Watch: is}))
	}
	page, err := c.cfg.Store.List(ctx, nonce.ListQuery{Signer: name, From: is.Nonce, Limit: nonce.MaxCount})
	if err != nil {
		return &nonce.Gap{Kind: is.Kind, Nonce: is.Nonce, Since: is.SinceTime()}
	}
	return TroubleOf(is, &page)
}
