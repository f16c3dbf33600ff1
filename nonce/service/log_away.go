package service

import (
	"context"
	"errors"
	"time"

	"noncegate/nonce"
)

// While hand-outs rest on logs, a store that does not answer must not hold them up: neither
// those that wait for a shipment since the rows were far behind, nor those behind a batch that
// reads something.

const (
	// awayPatience bounds what a batch waits for a store that is away, and awayAgain is between
	// two tries: hand-outs wait for a tenth of the time at most.
	awayPatience = 100 * time.Millisecond
	awayAgain    = time.Second

	// askPatience is what a batch waits for a store that is not away, at least: an acquire may wait
	// for others.
	askPatience = time.Second
)

const errStoreAway nonce.Told = "the database does not answer just now; try again"

var errSilent = errors.New("neither a shipment nor a heartbeat was answered in time")

// hears notes that the store answered.
func (s *Service) hears(at time.Time) { s.heard.Store(&at) }

// heardLately reports whether the store has answered a heartbeat, or a shipment, within half of a lease.
func (s *Service) heardLately() bool { return time.Since(*s.heard.Load()) < s.cfg.LeaseTTL/2 }

// checkStore finds out that the store is away before a shipment has waited for as long as it may:
// it has answered neither that for the ship SLA nor a heartbeat for half of a lease. And it finds
// out that the store is there again where nothing is to be shipped.
func (w *worker) checkStore() {
	switch {
	case w.storeQuiet():
		w.noteStore(errSilent)
	case w.logs.storeAway && !w.logs.shipper.underWay && w.svc.heard.Load().After(w.logs.awaySince):
		w.noteStore(nil)
	}
}

// storeQuiet reports whether it is time for checkStore. The probe of the logs wakes the worker for it.
func (w *worker) storeQuiet() bool {
	if w.logs.storeAway || w.svc.heardLately() {
		return false
	}
	return w.logs.shipper.underWay && time.Since(w.logs.shipper.began) > w.svc.cfg.Log.ShipSLA
}

// noteStore follows whether the store is away, and why; nil: it is there. When it is away,
// hand-outs that wait for a shipment, because the rows were far behind, are told: from then on
// the grant says how long they may be.
func (w *worker) noteStore(why error) {
	was := w.logs.storeAway
	w.logs.storeAway = why != nil
	switch {
	case was && why == nil:
		w.svc.log.Info("the store answers again", "worker", w.index)
		for _, sh := range w.serving() {
			if lg := sh.log; lg.full { // no shipment could make room meanwhile
				from := lg.failing
				if w.logs.awaySince.After(from) {
					from = w.logs.awaySince
				}
				lg.failing = lg.failing.Add(time.Since(from))
				sh.logFailed.since = lg.failing
			}
		}
		return
	case was || why == nil:
		return
	}
	w.logs.awaySince = time.Now()
	w.svc.log.Warn("the store does not answer; hand-outs go on by the log until the grant ends", "worker", w.index, "error", why)
	now := time.Now()
	for _, sh := range w.serving() {
		for sig := range sh.log.dirty {
			u := sig.unshipped
			told := u.waiting
			u.waiting = nil
			for _, v := range told {
				if handOut(v.task, &v.answer) && alone(sig, sh.log, sig.row.Next, &v.answer) && now.Before(sh.log.trust) {
					w.tellLate(v)
				} else {
					u.waiting = append(u.waiting, v)
				}
			}
		}
	}
}

// askStore reads, acquires or reserves something that groups wait for. With logs the store is waited for as
// long as the ship SLA, and while it is away shortly and now and then; else for StoreTimeout. One that
// is slow is not away as long as it answers heartbeats.
func (w *worker) askStore(ask func(context.Context) error) error {
	patience, logs := w.svc.cfg.StoreTimeout, len(w.serving()) > 0
	switch {
	case !logs:
	case w.logs.storeAway && time.Now().Before(w.logs.askAgain):
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: errStoreAway}
	case w.logs.storeAway:
		patience = awayPatience
	default:
		patience = min(patience, max(w.svc.cfg.Log.ShipSLA, askPatience))
	}
	ctx, cancel := context.WithTimeout(w.svc.calls, patience)
	defer cancel()
	err := ask(ctx)
	if logs && !errors.Is(err, errUnreadable) && (err == nil || nonce.OutcomeOf(err) != nonce.Aborted) {
		w.logs.askAgain = time.Now().Add(awayAgain)
		if w.logs.storeAway || !errors.Is(err, context.DeadlineExceeded) || !w.svc.heardLately() {
			w.noteStore(err)
		}
	}
	return err
}
