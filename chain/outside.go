package chain

import (
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

// outsider is a nonce that the chain has used, as far as this node knows not by its
// holder. The store is asked before that is said: another node may have handed it out, or
// recorded the transaction.
type outsider struct {
	nonce int64
	tx    Hash // what used it; zero: a count moved past it, which is told when it is final
	final bool
	free  bool // it was given back, and had no holder
	auth  bool // an authorization that tx carried used it
	told  bool // that it is used was told
	plain bool // its holder used it, as far as is known: only tx waits to be settled
	sure  bool // tx is settled, or is none
	// beside: one node says so of a block, and another transaction was told, which stands as long as
	// no other node says so.
	beside bool

	asked time.Time // when nodes were asked for tx last
	looks int       // in which nodes answered and tx was not settled
}

func (o *outsider) due() bool { return o.sure && (o.final || o.plain || o.tx != Hash{}) }

// outsideLocked keeps an outsider until nodes and the store were asked, and reports whether there is
// room: one of a nonce, and what one node says beside one that is settled.
func (s *signer) outsideLocked(o outsider) bool {
	i := slices.IndexFunc(s.outside, func(was outsider) bool { return was.nonce == o.nonce && !(was.sure && o.beside) })
	switch {
	case i >= 0:
		was := &s.outside[i]
		o.told, o.free, o.beside = o.told && was.told, o.free || was.free, o.beside && was.beside
		s.outside[i] = o
	case len(s.outside) < maxTold:
		s.outside = append(s.outside, o)
	default:
		return false
	}
	return true
}

// authorized is a nonce that an authorization in a block may have used. The chain may have skipped
// it: the count at that block tells.
type authorized struct {
	nonce int64
	tx    Hash  // that carried it
	at    int64 // about the number of the block
}

// maxAllowed bounds the authorizations of one account that wait for a count.
const maxAllowed = 64

// authorizedLocked is the transaction whose authorization used a nonce, as the count has passed it
// and no transaction of the account used it; zero: none, or it may be one of several.
func (s *signer) authorizedLocked(n int64) (tx Hash) {
	for _, a := range s.allowed {
		switch {
		case a.nonce != n || a.tx == tx:
		case tx != Hash{}:
			return Hash{}
		default:
			tx = a.tx
		}
	}
	return tx
}

// oursLocked reports whether a transaction is recorded for another nonce of the account, which may
// have carried its authorization.
func (s *signer) oursLocked(tx Hash) bool {
	for _, k := range s.notes {
		if k.hashes.Contains(tx) {
			return true
		}
	}
	return slices.ContainsFunc(s.holdings, func(h holding) bool { return h.tx == tx })
}

// minedByLocked reports whether it is known which transaction a block used a nonce with, and whether
// it is among these.
func (s *signer) minedByLocked(n int64, among nonce.TxHashes) (is, known bool) {
	if k := s.lookLocked(n); k != nil {
		is = among.Contains(k.tx)
		return is, k.seen == Mined && k.tx != Hash{} && (is || k.settledTx() != Hash{})
	}
	by, found := s.t.memory.found.Get(use{s.account, n})
	if !found {
		return false, false
	}
	for j := range among.Len() {
		if endOf(among.At(j)) == by {
			return true, true
		}
	}
	return false, true
}

// settleOutside asks the store for the nonces that their holders seem not to have used, and tells
// of those where that is so. While the store cannot be asked they wait.
func (t *Tracker) settleOutside(ctx context.Context, s *signer, left *budget) {
	s.mu.Lock()
	events := s.plainLocked()
	i := slices.IndexFunc(s.outside, func(o outsider) bool { return o.due() })
	from := int64(0)
	if i >= 0 {
		from = s.outside[i].nonce
	}
	s.mu.Unlock()
	if len(events) > 0 {
		t.report(s, events)
	}
	if i < 0 {
		return
	}
	// What carried an authorization of the account itself has a nonce a little lower.
	below := max(0, from-authorizedBelow)
	if page, err := left.list(ctx, s, below); err == nil {
		t.report(s, s.settledOutside(from, page))
	}
}

// plainLocked tells of the nonces that their holders used with a transaction which is settled now, or
// is not known.
func (s *signer) plainLocked() (events []nonce.Event) {
	s.outside = slices.DeleteFunc(s.outside, func(o outsider) bool {
		if !o.plain || !o.due() {
			return false
		}
		e := nonce.Event{Type: nonce.EventMined, Nonce: o.nonce, TxHash: o.tx}
		if k := s.lookLocked(o.nonce); k != nil {
			e.Attempt = k.attempt
		}
		events = append(events, e)
		return true
	})
	return events
}

// authorizedBelow is how far below a nonce the transaction is looked for that carried its
// authorization.
const authorizedBelow = 16

// settledOutside takes a page of the store, from a nonce on, for what it says of outsiders.
func (s *signer) settledOutside(from int64, page *nonce.ListPage) (events []nonce.Event) {
	rows := make(map[int64]*nonce.Row, len(page.Rows))
	for i := range page.Rows {
		rows[page.Rows[i].Nonce] = &page.Rows[i]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outside = slices.DeleteFunc(s.outside, func(o outsider) bool {
		if !o.due() || o.nonce < from || page.NextFrom >= 0 && o.nonce >= page.NextFrom {
			return false
		}
		ours := o.auth && slices.ContainsFunc(page.Rows, func(r nonce.Row) bool { return r.Nonce != o.nonce && recorded(&r).Contains(o.tx) })
		events = append(events, o.events(rows[o.nonce], ours)...)
		return true
	})
	return events
}

// events says what became of an outsider. row is what the store has of it; nil: it was
// never handed out. ours: its transaction is recorded for another nonce of the account.
func (o *outsider) events(row *nonce.Row, ours bool) (events []nonce.Event) {
	external := nonce.Event{Type: nonce.EventExternal, Nonce: o.nonce, TxHash: o.tx, Reason: "transaction"}
	if o.tx == (Hash{}) {
		external.Reason = "unknown"
	}
	is := row == nil && !o.told
	if row != nil {
		own := recorded(row)
		external.Attempt = row.Attempt
		is = own != "" && o.tx != (Hash{}) && !own.Contains(o.tx) ||
			own == "" && o.free && (row.Status == nonce.Released || row.Reason == nonce.ReasonMined)
	}
	is = is && !ours
	if !o.told && (row != nil || !is) {
		events = append(events, nonce.Event{Type: nonce.EventMined, Nonce: o.nonce, Attempt: external.Attempt, TxHash: o.tx})
	}
	if is {
		events = append(events, external)
	}
	return events
}
