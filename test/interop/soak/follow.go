package main

import (
	"errors"
	"slices"
	"time"
)

// firstResend is when a transaction that is not mined is sent again, and maxResend how
// long it takes at most until the next time.
const (
	firstResend = 8 * time.Second
	maxResend   = time.Minute
	bumpAfter   = 2 * time.Second
	stuckAfter  = 20 * time.Second // when a source is told that something is wrong
)

// follow looks after what the worker has sent until it is mined for good: it sends again
// what is not mined, what a crash has left in the journal first, replaces what it means to
// replace, and has a payment begin again whose nonce was used by another transaction.
func (w *incarnation) follow() {
	for sleep(w.ctx, 300*time.Millisecond) {
		for _, g := range w.journal.live(w.id) {
			if w.ctx.Err() != nil {
				return
			}
			w.look(g)
		}
	}
}

func (w *incarnation) look(g glance) {
	hash, final, used := w.chain.used(g.account, g.nonce)
	switch {
	case used && !final:
		// A reorg may undo it.
	case used && slices.Contains(g.hashes, hash):
		w.journal.end(g.entry, mined)
		w.queue.finish(g.payment)
	case used:
		w.counts.deads.Add(1)
		w.journal.end(g.entry, dead)
		w.queue.back(g.payment, true, 0)
	case g.orphan:
		w.adopt(g)
	case g.state == sending && g.bump && time.Since(g.sent) > bumpAfter:
		w.bump(g)
	case g.state == sending && time.Since(g.sent) > min(firstResend<<min(g.tries-1, 4), maxResend):
		w.resend(g)
	}
}

// adopt goes on with what was in the hands of the worker when it crashed.
func (w *incarnation) adopt(g glance) {
	first := g.ticket.style == recordFirst || g.ticket.style == withinFirst
	if g.state == prepared && first {
		switch err := w.source.record(w.ctx, g.ticket, g.hashes[0].Hex()); {
		case errors.Is(err, errRefused):
			w.counts.recordRefused.Add(1)
			if w.journal.drop(g.entry, false) {
				w.queue.back(g.payment, true, 0)
				return
			}
		case err != nil:
			return // the next time
		}
	}
	w.resend(g)
}

func (w *incarnation) resend(g glance) {
	tx := w.journal.toSend(g.entry)
	if tx == nil {
		return
	}
	w.counts.resends.Add(1)
	out := w.nodes.send(w.ctx, tx)
	w.counts.sends[out].Add(1)
	if style := g.ticket.style; out == accepted && (style == markAfter || style == within) {
		_ = w.source.used(w.ctx, g.ticket, tx.Hash().Hex())
	}
	if time.Since(g.written) > stuckAfter {
		w.source.failed(w.ctx, g.ticket)
	}
}

// bump replaces a transaction by one of the same payment and nonce with higher fees, and
// has that recorded before, or marked after, as the first was.
func (w *incarnation) bump(g glance) {
	w.journal.bumped(g.entry)
	tx := w.sign(g.payment, g.nonce, 20)
	if style := g.ticket.style; style == recordFirst || style == withinFirst {
		if err := w.source.record(w.ctx, g.ticket, tx.Hash().Hex()); err != nil {
			return // somebody else looks after that nonce
		}
	}
	w.journal.replace(g.entry, tx)
	if tx = w.journal.toSend(g.entry); tx == nil {
		return
	}
	w.counts.bumps.Add(1)
	out := w.nodes.send(w.ctx, tx)
	w.counts.sends[out].Add(1)
	if g.ticket.style == markAfter || g.ticket.style == within {
		_ = w.source.used(w.ctx, g.ticket, tx.Hash().Hex())
	}
}
