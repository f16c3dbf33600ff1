package main

import (
	"context"

	"noncegate/chain"
	"noncegate/nonce"
	"noncegate/wire"
)

// chainAsk has what a chain says of a signer be said by its owner: another node is asked, and a node
// that has just become the owner reads what the one before it has stored. Where the owner cannot be
// asked, the answer is what is stored and what this node knows, and says so.
func (a *app) chainAsk(q *nonce.Request, r *nonce.Result) func() {
	if !a.chains.Configured(q.Signer) {
		return nil
	}
	node, url, mine := a.service.OwnerOf(q.Signer)
	switch {
	case mine && a.chains.Found(q.Signer):
		return nil
	case mine:
		return func() { r.Said = a.storedOf(q, r, true) }
	}
	return func() {
		if said, ok := a.askOwner(node, url, q); ok {
			r.Said = said
			return
		}
		r.Said = a.storedOf(q, r, false)
	}
}

// chainSay adds to a status or list that another node asks for what this node knows of the chain as the
// signer's owner; it may not be the owner any more.
func (a *app) chainSay(q *nonce.Request, r *nonce.Result) {
	if a.chains == nil {
		r.Said = new(nonce.ChainSaid)
		return
	}
	node, url, mine := a.service.OwnerOf(q.Signer)
	switch {
	case !mine:
		r.Err = &nonce.NotOwnerError{Node: node, URL: url}
	case !a.chains.Found(q.Signer):
		r.Said = a.storedOf(q, r, true)
	case q.Kind == nonce.KindStatus:
		r.Said = &nonce.ChainSaid{State: a.chainStatus(context.Background(), q.Signer, r.Summary.Next)}
	default:
		r.Said = &nonce.ChainSaid{Words: wordsOf(r.Page.Rows, a.chains.Words(q.Signer, r.Page.Rows))}
	}
}

// askOwner asks the owner of a signer what its chain says.
func (a *app) askOwner(node, url string, q *nonce.Request) (said *nonce.ChainSaid, ok bool) {
	if node == "" || a.router == nil || !a.router.Reaches(node) {
		return nil, false
	}
	said, err := a.router.Ask(node, url, *q)
	return said, err == nil
}

// storedOf is what the store has of a signer's chain, with what this node knows.
func (a *app) storedOf(q *nonce.Request, r *nonce.Result, mine bool) *nonce.ChainSaid {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ChainTimeout)
	defer cancel()
	trouble := a.storedTrouble(ctx, q.Signer, mine)
	if q.Kind == nonce.KindList {
		return &nonce.ChainSaid{Words: a.storedWords(q, r, trouble), Partial: !mine}
	}
	a.chains.LookAt(q.Signer, r.Summary.Next)
	st, known := a.chains.State(q.Signer)
	switch {
	case trouble != nil && (!known || trouble.Nonce >= st.Mined):
		if !known {
			st.Mined = trouble.Nonce // it was the lowest unused one
		}
		st.Trouble = trouble
	case !known:
		return &nonce.ChainSaid{}
	}
	return &nonce.ChainSaid{State: &st, Partial: !mine}
}

// storedWords is what is known of each row: a recorded transaction that the owner found in no pool
// is dropped, whatever this node has not looked for.
func (a *app) storedWords(q *nonce.Request, r *nonce.Result, trouble *nonce.Gap) []nonce.ChainWord {
	texts := a.chains.Words(q.Signer, r.Page.Rows)
	for i := range texts {
		lost := trouble != nil && trouble.Kind != nonce.WatchStuck && trouble.Nonce == r.Page.Rows[i].Nonce
		if lost && texts[i] == wire.ChainSent {
			texts[i] = wire.ChainDropped
		}
	}
	return wordsOf(r.Page.Rows, texts)
}

// wordsOf is what is said of each row, as far as anything is.
func wordsOf(rows []nonce.Row, texts []string) (words []nonce.ChainWord) {
	for i, text := range texts {
		if text != "" {
			words = append(words, nonce.ChainWord{Nonce: rows[i].Nonce, Attempt: rows[i].Attempt, Word: text})
		}
	}
	return words
}

// storedTrouble is what the owner of a signer has found, as the store lists it; nil: nothing, or that
// cannot be read. A node that owns the signer now takes it over.
func (a *app) storedTrouble(ctx context.Context, signer string, mine bool) *nonce.Gap {
	rows, err := a.store.Signers(ctx, nonce.SignersQuery{Names: []string{signer}, Limit: 1})
	if err != nil || len(rows) == 0 || !rows[0].Watch.Kind.Trouble() {
		return nil
	}
	is := rows[0].Watch
	if mine {
		a.chains.Adopt(signer, is)
	}
	page, err := a.store.List(ctx, nonce.ListQuery{Signer: signer, From: is.Nonce, Limit: nonce.MaxCount})
	if err != nil {
		return &nonce.Gap{Kind: is.Kind, Nonce: is.Nonce, Since: is.SinceTime()}
	}
	return chain.TroubleOf(is, &page)
}
