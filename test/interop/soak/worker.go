package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"noncegate/client"
	"noncegate/test/interop/chaintest"
)

// parallel is how many payments a worker has in its hands at a time, besides those that
// were sent and are not mined.
const parallel = 4

// worker executes payments. All of it but its number is lost when it crashes; what
// survives is in the queue and in the journal.
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
	live := w.journal.crashed(w.id)
	for _, p := range w.queue.claimed(w.id) {
		if !live[p] {
			w.queue.back(p, false, 0)
		}
	}
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for p := w.queue.take(w.ctx, w.id); p != nil; p = w.queue.take(w.ctx, w.id) {
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
	w.counts.crashes.Add(1)
	w.cancel(errCrash)
	return true
}

// pay takes a nonce for a payment and sends its transaction, if nothing goes wrong.
func (w *incarnation) pay(p *payment) {
	plan := planOf(w.cfg.Seed, p.id, p.generation, p.runs, w.calm.Load())
	w.counts.mishaps[plan.mishap].Add(1)
	var err error
	if g, ok := w.source.(*gatewaySource); ok && (plan.style == within || plan.style == withinFirst) {
		err = g.within(w.ctx, p, plan, func(ctx context.Context, t ticket, record func(hash string) error) (string, error) {
			return w.spend(ctx, p, plan, t, record)
		})
	} else {
		err = w.steps(p, plan)
	}
	if w.ctx.Err() != nil || w.journal.leave(p, w.id) {
		return // it is found again, or followed
	}
	w.queue.back(p, errors.Is(err, errEndedHold) || errors.Is(err, errRefused) || p.runs%2 == 0, 200*time.Millisecond)
}

// steps is what WithNonce does, by hand.
func (w *incarnation) steps(p *payment, plan plan) error {
	t, err := w.source.take(w.ctx, p, plan)
	if err != nil {
		return err
	}
	var record func(string) error
	if plan.style == recordFirst {
		record = func(hash string) error { return w.source.record(w.ctx, t, hash) }
	}
	hash, err := w.spend(w.ctx, p, plan, t, record)
	switch {
	case w.ctx.Err() != nil:
		return err
	case errors.Is(err, client.ErrNotSent):
		return errors.Join(err, w.source.back(w.ctx, t, record != nil))
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
func (w *incarnation) spend(ctx context.Context, p *payment, plan plan, t ticket, record func(string) error) (string, error) {
	if w.crash(plan, crashTaken) || !w.dawdle(ctx, plan, t) {
		return "", context.Cause(ctx)
	}
	if plan.mishap == signFails {
		return "", fmt.Errorf("%w: the key is out of reach", client.ErrNotSent)
	}
	tx := w.sign(p, t.nonce, 0)
	e := w.journal.write(&entry{owner: w.id, payment: p, account: p.account, ticket: t, bump: plan.mishap == bump}, tx)
	if w.crash(plan, crashWritten) {
		return "", errCrash
	}
	if record != nil {
		if err := w.recordFirst(ctx, e, plan, record, tx); err != nil {
			return "", err
		}
	}
	if w.crash(plan, crashRecorded) {
		return "", errCrash
	}
	return tx.Hash().Hex(), w.firstSend(ctx, e, plan)
}

// recordFirst records a hash. Where that is refused, the transaction must not be sent.
func (w *incarnation) recordFirst(ctx context.Context, e *entry, plan plan, record func(string) error, tx *types.Transaction) error {
	err := record(tx.Hash().Hex())
	switch {
	case err == nil:
		if plan.mishap == late {
			w.counts.lateRecorded.Add(1)
		}
		return nil
	case !errors.Is(err, errRefused):
		return err // it stays in the journal, and is asked about again
	}
	w.counts.recordRefused.Add(1)
	if plan.mishap == late {
		w.counts.lateRefused.Add(1)
	}
	if !w.journal.drop(e, false) {
		return nil // the watcher has sent it
	}
	return fmt.Errorf("%w: %w", client.ErrNotSent, err)
}

func (w *incarnation) firstSend(ctx context.Context, e *entry, plan plan) error {
	tx := w.journal.toSend(e)
	if tx == nil {
		return errUnsure
	}
	out := w.nodes.send(ctx, tx)
	w.counts.sends[out].Add(1)
	if w.crash(plan, crashSent) {
		return errCrash
	}
	if plan.mishap == twice {
		w.nodes.sendTwice(ctx, tx)
		return nil
	}
	switch out {
	case accepted:
		return nil
	case refused:
		if w.journal.drop(e, true) {
			return fmt.Errorf("%w: every node refused", client.ErrNotSent)
		}
	}
	if w.cfg.Fresh {
		w.journal.end(e, abandoned)
	}
	return errUnsure
}

// dawdle is the time that signing takes.
func (w *incarnation) dawdle(ctx context.Context, plan plan, t ticket) bool {
	hold := w.cfg.HoldTTL
	switch plan.mishap {
	case late:
		return sleep(w.ctx, hold+plan.pause)
	case slow:
		if g, ok := w.source.(*gatewaySource); ok {
			g.extend(ctx, t, 2*hold)
		}
		return sleep(ctx, hold/2+plan.pause)
	}
	return true
}

// sink is where all payments go.
var sink = chaintest.NewAccount(1 << 20).Address

func (w *worker) sign(p *payment, nonce uint64, bump int) *types.Transaction {
	return w.chain.Sign(w.chain.all[p.account], chaintest.Payment{
		Nonce: nonce, To: sink, Value: new(big.Int).SetUint64(p.id), Data: payload(p.id), Bump: bump,
	})
}

// counts are what happened in a run.
type counts struct {
	crashes, calls, recordRefused, lateRefused, lateRecorded, markConflicts atomic.Int64
	resends, bumps, deads, resets                                           atomic.Int64
	kills, bothKilled, faults, drops, reorgs                                atomic.Int64
	repairs, repairsResent, repairsCancelled, repairsFailed                 atomic.Int64
	reissued, missed, closing                                               atomic.Int64
	mishaps                                                                 [len(mishapNames)]atomic.Int64
	sends                                                                   [4]atomic.Int64
}
