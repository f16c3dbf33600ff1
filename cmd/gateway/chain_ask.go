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
func (a *app) chainAsk() func(op *nonce.Op, ofNode bool) func() {
	if a.chains == nil {
		return nil
	}
	return func(op *nonce.Op, ofNode bool) func() {
		if !a.chains.Configured(op.Signer) {
			return nil
		}
		node, url, mine := a.service.OwnerOf(op.Signer)
		switch {
		case mine && a.chains.Found(op.Signer):
			return nil
		case mine:
			return func() { op.Said = a.storedOf(op, true) }
		case ofNode:
			op.Err = &nonce.NotOwnerError{Node: node, URL: url}
			return nil
		}
		return func() {
			if said, ok := a.askOwner(node, url, op); ok {
				op.Said = said
				return
			}
			op.Said = a.storedOf(op, false)
		}
	}
}

// askOwner asks the owner of a signer what its chain says.
func (a *app) askOwner(node, url string, op *nonce.Op) (said *nonce.ChainSaid, ok bool) {
	if node == "" || a.router == nil || !a.router.Reaches(node) {
		return nil, false
	}
	var err error
	if op.Kind == nonce.KindStatus {
		said, err = a.router.StatusAt(node, url, op.Signer, op.Principal)
	} else {
		said, err = a.router.ListAt(node, url, op.List, op.Principal)
	}
	return said, err == nil
}

// storedOf is what the store has of a signer's chain, with what this node knows.
func (a *app) storedOf(op *nonce.Op, mine bool) *nonce.ChainSaid {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ChainTimeout)
	defer cancel()
	trouble := a.storedTrouble(ctx, op.Signer, mine)
	if op.Kind == nonce.KindList {
		return &nonce.ChainSaid{Words: a.storedWords(op, trouble), Partial: !mine}
	}
	a.chains.LookAt(op.Signer, op.Summary.Next)
	st, known := a.chains.State(op.Signer)
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
func (a *app) storedWords(op *nonce.Op, trouble *nonce.Gap) []nonce.ChainWord {
	texts := a.chains.Words(op.Signer, op.Page.Rows)
	words := make([]nonce.ChainWord, len(op.Page.Rows))
	for i := range op.Page.Rows {
		row := &op.Page.Rows[i]
		words[i].Nonce, words[i].Attempt = row.Nonce, row.Attempt
		if i < len(texts) {
			words[i].Word = texts[i]
		}
		lost := trouble != nil && trouble.Kind != nonce.WatchStuck && trouble.Nonce == row.Nonce
		if lost && words[i].Word == wire.ChainSent {
			words[i].Word = wire.ChainDropped
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
