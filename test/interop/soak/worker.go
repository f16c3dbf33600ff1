package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"noncegate/client"
	"noncegate/test/interop/chaintest"
)

const (
	// parallel is how many payments a worker has in its hands at a time, besides those that were sent and are not mined.
	parallel = 4

	firstResend = 8 * time.Second // when a transaction that is not mined is sent again
	maxResend   = time.Minute     // how long it takes at most until the next time
	bumpAfter   = 2 * time.Second
	stuckAfter  = 20 * time.Second // when a source is told that something is wrong
)

// mishap is what goes wrong with the worker itself.
type mishap string

const (
	fine          mishap = "none"
	crashTaken    mishap = "crash before signing"
	crashWritten  mishap = "crash before recording"
	crashRecorded mishap = "crash before sending"
	crashSent     mishap = "crash before marking"
	late          mishap = "late" // is done with signing when the hold is over
	slow          mishap = "slow, extended"
	twice         mishap = "sent twice" // to all nodes
	bump          mishap = "replaced"   // with higher fees
	forget        mishap = "not marked"
	signFails     mishap = "not signed"
)

// shares are how many of 1000 payments meet each mishap.
var shares = []struct {
	mishap
	of1000 int
}{
	{crashTaken, 5}, {crashWritten, 5}, {crashRecorded, 5}, {crashSent, 5},
	{late, 40}, {slow, 15}, {twice, 60}, {bump, 60}, {forget, 60}, {signFails, 30},
}

// plan is what a payment does in one run.
type plan struct {
	first     bool   // record the hash, then send; else send, then mark
	requestID string // "" without
	mishap    mishap
	pause     time.Duration // of late and slow, beyond the hold
}

// planOf draws what a payment does: how it takes its nonce for each generation, what goes wrong for each run.
func planOf(seed, id uint64, generation, runs int, calm bool) plan {
	r := rand.New(rand.NewPCG(seed, id<<16|uint64(generation)))
	p := plan{mishap: fine}
	if r.IntN(2) == 0 {
		p.requestID = fmt.Sprintf("payment-%d-%d", id, generation)
	}
	p.first = r.IntN(2) == 0
	if calm {
		return p
	}
	r = rand.New(rand.NewPCG(seed+1, id<<16|uint64(runs)))
	n := r.IntN(1000)
	for _, s := range shares {
		if n -= s.of1000; n < 0 {
			p.mishap = s.mishap
			break
		}
	}
	p.pause = time.Duration(500+r.IntN(3000)) * time.Millisecond
	return p
}

// worker executes payments. All of it but its number is lost when it crashes; what survives is in the ledger.
type worker struct {
	*soak
	id int
}

// incarnation is a worker between two crashes.
type incarnation struct {
	*worker
	ctx    context.Context
	cancel context.CancelCauseFunc
	source source
}

// run lives until the run ends, with as many crashes as come.
func (w *worker) run() {
	for w.ctx.Err() == nil {
		ctx, cancel := context.WithCancelCause(w.ctx)
		source, err := w.connect(ctx, w.id)
		if err != nil {
			cancel(nil)
			sleep(w.ctx, 200*time.Millisecond)
			continue
		}
		(&incarnation{w, ctx, cancel, source}).live()
		cancel(nil)
		sleep(w.ctx, 100*time.Millisecond) // until somebody starts it again
	}
}

func (w *incarnation) live() {
	stop := context.AfterFunc(w.ctx, w.source.close)
	defer w.source.close()
	defer stop()
	w.ledger.crashed(w.id)
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for p := w.ledger.take(w.ctx, w.id); p != nil; p = w.ledger.take(w.ctx, w.id) {
				w.pay(p)
			}
		})
	}
	all.Go(w.follow)
	all.Wait()
}

// crash ends the incarnation where the payment is planned to do so.
func (w *incarnation) crash(p plan, at mishap) bool {
	if p.mishap != at {
		return false
	}
	w.happens("crashes of workers")
	w.cancel(errCrash)
	return true
}

// pay takes a nonce for a payment and sends its transaction, if nothing goes wrong.
func (w *incarnation) pay(p *payment) {
	plan := planOf(w.cfg.Seed, p.id, p.generation, p.runs, w.chaos.Err() != nil)
	w.happens("payment: " + string(plan.mishap))
	var err error
	if s, ok := w.source.(*packageSource); ok {
		err = w.payByPackage(s, p, plan)
	} else {
		err = w.steps(p, plan)
	}
	if w.ctx.Err() != nil || w.ledger.leave(p, w.id) {
		return // it is found again, or followed
	}
	w.ledger.back(p, errors.Is(err, errEndedHold) || errors.Is(err, errRefused) || p.runs%2 == 0, 200*time.Millisecond)
}

// steps takes a nonce, spends it, and says what became of it.
func (w *incarnation) steps(p *payment, plan plan) error {
	t, err := w.source.take(w.ctx, p, plan)
	if err != nil {
		return err
	}
	hash, err := w.spend(p, plan, t)
	switch {
	case w.ctx.Err() != nil:
		return err
	case errors.Is(err, client.ErrNotSent):
		return errors.Join(err, w.source.back(w.ctx, t, t.first))
	case err != nil:
		w.source.failed(w.ctx, t)
		return err
	case plan.mishap == forget:
		return nil
	}
	return w.source.used(w.ctx, t, hash)
}

// errUnsure says that nobody knows whether a transaction was sent.
var errUnsure = errors.New("the outcome of sending is not known")

// spend signs, journals, records where it has to, and sends. Its error matches
// client.ErrNotSent when no node was given anything, and nothing will be.
func (w *incarnation) spend(p *payment, plan plan, t ticket) (string, error) {
	if w.crash(plan, crashTaken) || !w.dawdle(plan, t) {
		return "", context.Cause(w.ctx)
	}
	if plan.mishap == signFails {
		return "", fmt.Errorf("%w: the key is out of reach", client.ErrNotSent)
	}
	tx := w.sign(p, t.nonce, 0)
	e := w.ledger.write(&entry{owner: w.id, payment: p, account: p.account, ticket: t, bump: plan.mishap == bump}, tx)
	if w.crash(plan, crashWritten) {
		return "", errCrash
	}
	if t.first {
		if err := w.recordFirst(e, plan, w.source.record(w.ctx, t, tx.Hash().Hex())); err != nil {
			return "", err
		}
	}
	if w.crash(plan, crashRecorded) {
		return "", errCrash
	}
	return tx.Hash().Hex(), w.firstSend(e, plan)
}

// recordFirst says what follows from recording a hash. Where that is refused, the transaction must not be sent.
func (w *incarnation) recordFirst(e *entry, plan plan, err error) error {
	if err != nil && !errors.Is(err, errRefused) {
		return err // it stays in the journal, and is asked about again
	}
	if plan.mishap == late {
		w.happens(fmt.Sprintf("late records, refused %t", err != nil))
	}
	if err == nil {
		return nil
	}
	w.happens("records refused")
	if !w.ledger.drop(e, false) {
		return nil // the watcher has sent it
	}
	return fmt.Errorf("%w: %w", client.ErrNotSent, err)
}

// send gives an entry's newest transaction to a node; ok is false where that must not be.
func (w *soak) send(ctx context.Context, e *entry) (tx *types.Transaction, out outcome, ok bool) {
	if tx = w.ledger.toSend(e); tx == nil {
		return nil, "", false
	}
	out = w.nodes.send(ctx, tx, false)
	w.happens("sends " + string(out))
	return tx, out, true
}

func (w *incarnation) firstSend(e *entry, plan plan) error {
	tx, out, ok := w.send(w.ctx, e)
	if !ok {
		return errUnsure
	}
	if w.crash(plan, crashSent) {
		return errCrash
	}
	if plan.mishap == twice {
		w.nodes.send(w.ctx, tx, true)
		return nil
	}
	if out == accepted {
		return nil
	}
	if out == refused && w.ledger.drop(e, true) {
		return fmt.Errorf("%w: every node refused", client.ErrNotSent)
	}
	return errUnsure
}

// dawdle is the time that signing takes.
func (w *incarnation) dawdle(plan plan, t ticket) bool {
	switch plan.mishap {
	case late:
		return sleep(w.ctx, holdTTL+plan.pause)
	case slow:
		w.source.extend(w.ctx, t, 2*holdTTL)
		return sleep(w.ctx, holdTTL/2+plan.pause)
	}
	return true
}

// sink is where all payments go.
var sink = chaintest.NewAccount(1 << 20).Address

func (w *worker) sign(p *payment, nonce uint64, bump int) *types.Transaction {
	return w.chain.Sign(w.accounts[p.account], chaintest.Payment{
		Nonce: nonce, To: sink, Value: new(big.Int).SetUint64(p.id), Data: payload(p.id), Bump: bump,
	})
}

// follow looks after what the worker has sent until it is mined for good: it sends again what is not mined, what a crash has left in the
// journal first, replaces what it means to replace, and has a payment begin again whose nonce was used by another transaction.
func (w *incarnation) follow() {
	for sleep(w.ctx, 300*time.Millisecond) {
		for _, g := range w.ledger.live(w.id) {
			if w.ctx.Err() != nil {
				return
			}
			w.look(g)
		}
	}
}

func (w *incarnation) look(g glance) {
	w.mu.Lock()
	of := w.counts[g.account]
	w.mu.Unlock()
	nonce := g.txs[0].Nonce()
	switch {
	case nonce < of.latest:
		w.settle(g, nonce < of.final)
	case g.orphan:
		w.adopt(g)
	case g.state == sending && g.bump && time.Since(g.sent) > bumpAfter:
		w.bump(g)
	case g.state == sending && time.Since(g.sent) > min(firstResend<<min(g.tries-1, 4), maxResend):
		w.resend(g)
	}
}

// settle says what became of an entry whose nonce is used. Until that is final, a reorg may undo it.
func (w *incarnation) settle(g glance, final bool) {
	ours := slices.ContainsFunc(g.txs, func(tx *types.Transaction) bool { return w.chain.Receipt(tx.Hash()) != nil })
	switch {
	case ours && final:
		w.ledger.end(g.of, mined)
	case ours:
		w.ledger.locked(func() {
			if g.payment.seen.IsZero() {
				g.payment.seen = time.Now()
			}
		})
	case final:
		w.happens("transactions overtaken")
		w.ledger.end(g.of, dead)
	}
}

// adopt goes on with what was in the hands of the worker when it crashed.
func (w *incarnation) adopt(g glance) {
	if _, sdk := w.source.(*packageSource); g.state == prepared && g.ticket.first && !sdk {
		switch err := w.source.record(w.ctx, g.ticket, g.txs[0].Hash().Hex()); {
		case errors.Is(err, errRefused):
			w.happens("records refused")
			if w.ledger.drop(g.of, false) {
				w.ledger.back(g.payment, true, 0)
				return
			}
		case err != nil:
			return // the next time
		}
	}
	w.resend(g)
}

func (w *incarnation) resend(g glance) {
	if s, ok := w.source.(*packageSource); ok {
		w.againByPackage(s, g)
		return
	}
	tx, out, ok := w.send(w.ctx, g.of)
	if !ok {
		return
	}
	w.happens("sent again")
	if out == accepted && !g.ticket.first {
		_ = w.source.used(w.ctx, g.ticket, tx.Hash().Hex())
	}
	if time.Since(g.written) > stuckAfter {
		w.source.failed(w.ctx, g.ticket)
	}
}

// bump replaces a transaction by one of the same payment and nonce with higher fees, and
// has that recorded before, or marked after, as the first was.
func (w *incarnation) bump(g glance) {
	w.ledger.locked(func() { g.of.bump = false }) // once
	if s, ok := w.source.(*packageSource); ok {
		w.bumpByPackage(s, g)
		return
	}
	tx := w.sign(g.payment, g.txs[0].Nonce(), 20)
	if g.ticket.first {
		if err := w.source.record(w.ctx, g.ticket, tx.Hash().Hex()); err != nil {
			return // somebody else looks after that nonce
		}
	}
	w.ledger.locked(func() { g.of.txs = append(g.of.txs, tx) })
	tx, _, ok := w.send(w.ctx, g.of)
	if !ok {
		return
	}
	w.happens("replaced")
	if !g.ticket.first {
		_ = w.source.used(w.ctx, g.ticket, tx.Hash().Hex())
	}
}
