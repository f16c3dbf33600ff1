package performance

import (
	"context"
	"errors"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/service"
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

var errSilent = errors.New("neither a shipment nor a heartbeat was answered in time")

// heardLately reports whether the store has answered a heartbeat, or a shipment, within half of a lease.
func (c *committer) heardLately() bool {
	return time.Since(c.svc.Heard()) < c.svc.Config().LeaseTTL/2
}

// checkStore finds out that the store is away before a shipment has waited for as long as it may:
// it has answered neither that for the ship SLA nor a heartbeat for half of a lease. And it finds
// out that the store is there again where nothing is to be shipped.
func (c *committer) checkStore() {
	switch {
	case c.storeQuiet():
		c.noteStore(errSilent)
	case c.storeAway && !c.shipper.underWay && c.svc.Heard().After(c.awaySince):
		c.noteStore(nil)
	}
}

// storeQuiet reports whether it is time for checkStore. The probe of the logs wakes the worker for it.
func (c *committer) storeQuiet() bool {
	if c.storeAway || c.heardLately() {
		return false
	}
	return c.shipper.underWay && time.Since(c.shipper.began) > c.cfg.ShipSLA
}

// noteStore follows whether the store is away, and why; nil: it is there. When it is away,
// hand-outs that wait for a shipment, because the rows were far behind, are told: from then on
// the grant says how long they may be.
func (c *committer) noteStore(why error) {
	was := c.storeAway
	c.storeAway = why != nil
	switch {
	case was && why == nil:
		c.log.Info("the store answers again", "worker", c.worker.Index())
		for _, sh := range c.serving() {
			if sh.log.full { // no shipment could make room meanwhile
				from := sh.failing
				if c.awaySince.After(from) {
					from = c.awaySince
				}
				sh.failing = sh.failing.Add(time.Since(from))
			}
		}
		return
	case was || why == nil:
		return
	}
	c.awaySince = time.Now()
	c.log.Warn("the store does not answer; hand-outs go on by the log until the grant ends", "worker", c.worker.Index(), "error", why)
	now := time.Now()
	for _, sh := range c.serving() {
		for sig, u := range sh.log.dirty {
			told := u.waiting
			u.waiting = nil
			for _, v := range told {
				if handOut(v.Answer) && alone(sig, sh.log, u, sig.Row().Next, v.What()) && now.Before(sh.log.trust) {
					v.Tell()
				} else {
					u.waiting = append(u.waiting, v)
				}
			}
		}
	}
}

// Ask implements service.Committer. While logs serve the store is waited for as long as the ship SLA, and
// while it is away shortly and now and then; else for StoreTimeout. One that is slow is not away as long
// as it answers heartbeats.
func (c *committer) Ask(ask func(context.Context) error) error {
	ctx, cancel := c.svc.Timeout()
	defer cancel()
	if len(c.serving()) == 0 {
		return ask(ctx)
	}
	patience := max(c.cfg.ShipSLA, askPatience)
	switch {
	case c.storeAway && time.Now().Before(c.askAgain):
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: errStoreAway}
	case c.storeAway:
		patience = awayPatience
	}
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	err := ask(ctx)
	if !errors.Is(err, service.ErrUnreadable) && (err == nil || nonce.OutcomeOf(err) != nonce.Aborted) {
		c.askAgain = time.Now().Add(awayAgain)
		if c.storeAway || !errors.Is(err, context.DeadlineExceeded) || !c.heardLately() {
			c.noteStore(err)
		}
	}
	return err
}
