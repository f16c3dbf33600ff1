package service

import (
	"time"

	"noncegate/nonce"
)

// shipper sends the shipments of a worker's shards, one at a time.
type shipper struct {
	worker    *worker
	shipments chan *shipment // to its goroutine

	// What follows belongs to worker.batchMu.
	underWay  bool        // a shipment is
	began     time.Time   // when the last one did
	due       time.Time   // when it is time to look at shipping again
	timer     *time.Timer // wakes the worker then
	impatient bool        // answers wait for a shipment
}

func newShipper(w *worker) *shipper { return &shipper{worker: w, shipments: make(chan *shipment, 1)} }

// run is the goroutine that sends the shipments.
func (p *shipper) run(stop <-chan struct{}) {
	w := p.worker
	for {
		select {
		case <-stop:
			return
		case s := <-p.shipments:
			if len(s.what.Shards) > 0 {
				w.svc.dispatch(s)
			}
			w.mu.Lock()
			w.arrived = s
			w.mu.Unlock()
			w.signal()
			w.trim(s)
		}
	}
}

// next begins a shipment of what the logs of the worker's shards have, if it is time for one.
func (p *shipper) next() {
	w, cfg := p.worker, p.worker.svc.cfg.Log
	if cfg == nil || p.underWay {
		return
	}
	shards, now := w.serving(), time.Now()
	if len(shards) == 0 {
		p.due = time.Time{}
		return
	}
	wait := cfg.ShipEvery
	if p.impatient && !w.logs.storeAway {
		wait = cfg.ShipSoon
	}
	if due := p.began.Add(wait); now.Before(due) {
		p.wakeAt(due)
		return
	}
	s := &shipment{}
	for _, sh := range shards {
		lg := sh.log
		if lg.shipped > lg.trimmed {
			f := lg.fence
			f.Head = lg.shipped
			s.trims, lg.trimmed = append(s.trims, f), lg.shipped
		}
		if len(lg.dirty) > 0 || lg.shipped < lg.fence.Head || lg.trust.Sub(now) < cfg.Grant*2/3 {
			w.pack(s, sh)
		}
	}
	p.began, p.impatient = now, false
	p.wakeAt(now.Add(cfg.ShipEvery))
	if len(s.what.Shards) == 0 && len(s.trims) == 0 {
		return
	}
	s.what.Grant = nonce.Grant{For: cfg.Grant, LongestHold: w.svc.cfg.MaxHold}
	p.underWay = true
	p.shipments <- s
}

// wakeAt wakes the worker then.
func (p *shipper) wakeAt(at time.Time) {
	p.due = at
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.worker.signal)
		return
	}
	p.timer.Reset(time.Until(at))
}

// isDue reports whether it is time to look at shipping again.
func (p *shipper) isDue(now time.Time) bool {
	return !p.underWay && !p.due.IsZero() && !now.Before(p.due)
}
