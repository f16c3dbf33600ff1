package performance

import (
	"errors"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/service"
)

// shipper sends the shipments of a worker's shards, one at a time.
type shipper struct {
	*committer
	shipments chan *shipment // to its goroutine

	mu      sync.Mutex // guards arrived
	arrived *shipment  // that came back

	// What follows belongs to the goroutine that runs a batch.
	underWay  bool        // a shipment is
	began     time.Time   // when the last one did
	at        time.Time   // when it is time to look at shipping again
	timer     *time.Timer // wakes the worker then
	impatient bool        // answers wait for a shipment
}

// shipment is what goes to the store at a time, and comes back with what became of it.
type shipment struct {
	what    nonce.Shipment
	logs    []*shardLog // of each of its shards
	shards  []*shard
	signers []service.Signer // of each write
	began   time.Time        // before it was sent
	trims   []nonce.LogFence
	out     nonce.Shipped
	err     error
	refused error // why writes without a result were refused, each alone
}

// run is the goroutine that sends the shipments.
func (p *shipper) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case s := <-p.shipments:
			if len(s.what.Shards) > 0 {
				p.dispatch(s)
			}
			p.mu.Lock()
			p.arrived = s
			p.mu.Unlock()
			p.worker.Wake()
			p.trim(s.trims) // after the shipment, for whose answers callers wait
		}
	}
}

// take is the shipment that came back; nil: none has.
func (p *shipper) take() *shipment {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.arrived
	p.arrived = nil
	return s
}

// next begins a shipment of what the logs of the worker's shards have, if it is time for one.
func (p *shipper) next() {
	if p.underWay {
		return
	}
	shards, now := p.serving(), time.Now()
	if len(shards) == 0 {
		p.at = time.Time{}
		return
	}
	wait := p.cfg.ShipEvery
	if p.impatient && !p.storeAway {
		wait = p.cfg.ShipSoon
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
		if len(lg.dirty) > 0 || lg.shipped < lg.fence.Head || lg.trust.Sub(now) < p.cfg.Grant*2/3 {
			p.pack(s, sh)
		}
	}
	p.began, p.impatient = now, false
	p.wakeAt(now.Add(p.cfg.ShipEvery))
	if len(s.what.Shards) == 0 && len(s.trims) == 0 {
		return
	}
	s.what.Grant = p.grant()
	p.underWay = true
	p.shipments <- s
}

// wakeAt wakes the worker then.
func (p *shipper) wakeAt(at time.Time) {
	p.at = at
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.worker.Wake)
		return
	}
	p.timer.Reset(time.Until(at))
}

// isDue reports whether it is time to look at shipping again.
func (p *shipper) isDue(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrived != nil || !p.underWay && !p.at.IsZero() && !now.Before(p.at)
}

// trim takes what the rows have out of logs.
func (e *Engine) trim(logs []nonce.LogFence) {
	if len(logs) == 0 {
		return
	}
	ctx, cancel := e.logTime()
	defer cancel()
	if err := e.cfg.Log.Trim(ctx, logs); err != nil { // the next one takes out more
		e.log.Debug("logs were not trimmed", "error", err)
	}
}

// dispatch brings a shipment to the store. One that the store refuses for what a row would be
// is sent in halves, until the write at fault is alone. By these halves nothing is noted of
// the shards, which the next shipment does.
func (e *Engine) dispatch(of *shipment) {
	of.began = time.Now()
	if of.out, of.err = e.shipOnce(of.what); !errors.Is(of.err, nonce.ErrInvariant) {
		return
	}
	of.refused, of.out = of.err, nonce.Shipped{Granted: make([]bool, len(of.what.Shards)), Whole: make([]bool, len(of.what.Shards))}
	of.out.Results = make([]nonce.WriteResult, len(of.what.Writes))
	of.err = e.shipHalves(of, 0, len(of.what.Writes))
}

func (e *Engine) shipHalves(of *shipment, from, to int) error {
	for _, half := range [][2]int{{from, (from + to) / 2}, {(from + to) / 2, to}} {
		writes := of.what.Writes[half[0]:half[1]]
		if to-from <= 1 || len(writes) == 0 {
			continue // it was alone when it was refused
		}
		part := nonce.Shipment{Writes: writes, Grant: nonce.Grant{LongestHold: of.what.Grant.LongestHold}, Generation: of.what.Generation}
		for _, sh := range of.what.Shards {
			if slices.ContainsFunc(writes, func(w nonce.Write) bool { return w.Term == sh.Term }) {
				part.Shards = append(part.Shards, nonce.ShippedShard{Term: sh.Term})
			}
		}
		out, err := e.shipOnce(part)
		if errors.Is(err, nonce.ErrInvariant) {
			of.refused, err = err, e.shipHalves(of, half[0], half[1])
		} else if err == nil {
			copy(of.out.Results[half[0]:], out.Results)
			of.out.Now = out.Now
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) shipOnce(what nonce.Shipment) (nonce.Shipped, error) {
	ctx, cancel := e.svc.Timeout()
	defer cancel()
	return e.cfg.Store.Ship(ctx, e.svc.Holder(), what)
}

// pack adds what a shard's log has to a shipment.
func (c *committer) pack(s *shipment, sh *shard) {
	s.shards, s.logs = append(s.shards, sh), append(s.logs, sh.log)
	s.what.Generation = c.worker.Generation()
	s.what.Shards = append(s.what.Shards, nonce.ShippedShard{Term: sh.Term(), Head: sh.log.fence.Head})
	for sig, u := range sh.log.dirty {
		s.signers = append(s.signers, sig)
		s.what.Writes = append(s.what.Writes, c.folded(sh, sig, u))
	}
}

// folded is the write that brings the row of a signer to where memory is.
func (c *committer) folded(sh *shard, sig service.Signer, u *unshipped) nonce.Write {
	row := sig.Row()
	write := nonce.Write{Name: sig.Name(), Term: sh.Term(), Generation: c.worker.Generation(), Signer: *row}
	if write.Rise = row.Version - u.base.Version - 1; write.Rise < 0 {
		write.Rise, write.Check = 0, true
	}
	for _, p := range u.history {
		past := p.it
		at := slices.IndexFunc(write.History, func(h nonce.Past) bool { return h.Nonce == past.Nonce })
		if at >= 0 {
			past.Again = write.History[at].Again
			write.History[at] = past
		} else {
			write.History = append(write.History, past)
		}
	}
	for _, q := range u.requests {
		write.Requests = append(write.Requests, q.it)
	}
	listed, watch := sig.Listing()
	passed := *listed != 0 && *listed <= c.svc.Clock().Earliest || u.relist
	switch first := sig.FirstDeadline(); {
	case first != 0 && (passed || *listed == 0 || first < *listed):
		write.DueAt = first
	case first == 0 && passed:
		write.DueAt = nonce.Unlisted
	}
	if u.watch != *watch {
		write.Watch = u.watch
	}
	c.ahead(sh.log, sig, u, &write)
	return write
}

// ahead raises the ceiling of a signer that is handed out of, by its rate, so that no request
// waits for it, and so that hand-outs go on when the store is away.
func (c *committer) ahead(lg *shardLog, sig service.Signer, u *unshipped, write *nonce.Write) {
	if row := sig.Row(); u.handed == 0 || write.Check || row.Ceiling > 0 && row.Epoch != lg.epoch {
		return
	}
	rate := float64(u.handed) / max(time.Since(u.since), c.cfg.ShipSoon).Seconds()
	block := sig.Reserved()
	*block = min(max(int64(1.5*rate*c.cfg.Grant.Seconds()), *block, minBlock), int64(c.svc.Config().Rules.MaxLive))
	if write.Signer.Ceiling-write.Signer.Next < *block/2 {
		write.Signer.Ceiling = write.Signer.Next + *block
	}
	write.Signer.Epoch = lg.epoch
}

// shipped follows a shipment.
func (c *committer) shipped(s *shipment) {
	for i, lg := range s.logs {
		if s.shards[i].log != lg || s.err != nil {
			continue
		}
		if s.out.Granted[i] {
			if until := s.began.Add(s.what.Grant.For); until.After(lg.trust) {
				lg.trust = until
			}
		}
		if s.out.Whole[i] && !s.what.Shards[i].Off {
			lg.shipped = max(lg.shipped, s.what.Shards[i].Head)
		}
	}
	if len(s.what.Shards) == 0 {
		return
	}
	if s.err != nil {
		c.notShipped(s)
		return
	}
	c.noteStore(nil)
	c.svc.Hears(time.Now())
	if s.refused == nil {
		c.svc.Observe(s.began, time.Now(), s.out.Now)
	}
	c.loseNotGranted(s)
	var moved []service.Signer
	known := make(map[service.Signer]bool) // signers of which the store has a request id that is to be new
	for i, sig := range s.signers {
		sh, write, result := c.of(sig.Shard()), &s.what.Writes[i], s.out.Results[i]
		if sh.log == nil || !slices.Contains(s.logs, sh.log) || sh.log.dirty[sig] == nil {
			continue // it was lost meanwhile
		}
		u := sh.log.dirty[sig]
		if result != nonce.NotOwner && write.Believed() != u.base.Version {
			continue // a shipment by hand has overtaken it: this one says nothing of what is there now
		}
		switch result {
		case nonce.Applied:
			row := sig.Row()
			listed, watch := sig.Listing()
			if write.DueAt != 0 {
				*listed = max(0, write.DueAt)
			}
			if write.Watch.Kind != nonce.WatchAsIs {
				*watch = write.Watch
			}
			row.Ceiling, row.Epoch = max(row.Ceiling, write.Signer.Ceiling), max(row.Epoch, write.Signer.Epoch)
			c.inRow(sh, sig, write.Signer, write.Term.Token)
		case 0:
			c.stopRefused(sh, sig, s.refused)
		case nonce.NotOwner:
			c.log.Warn("fenced", "signer", sig.Name(), "op", "ship", "shard", sh.ID(),
				"provided_token", write.Term.Token, "node", c.svc.Holder().Node)
			sh.Lose()
		default:
			moved, known[sig] = append(moved, sig), result == nonce.IDKnown
		}
	}
	c.look(moved, known)
}

// notShipped follows a shipment that failed. It is tried again.
func (c *committer) notShipped(s *shipment) {
	if nonce.OutcomeOf(s.err) != nonce.Aborted {
		c.noteStore(s.err)
		return
	}
	c.noteStore(nil)
	c.log.Warn("what the log has was not shipped; it is tried again", "signers", len(s.what.Writes), "error", s.err)
}

// loseNotGranted gives up the shards whose rows are not as this node believes, also where the
// shipment had no write that would tell: a shipment before it whose answer was lost may have
// given the shard the reliable engine.
func (c *committer) loseNotGranted(s *shipment) {
	for i, sh := range s.shards {
		if s.refused == nil && sh.log == s.logs[i] && !s.out.Granted[i] {
			c.log.Warn("the row of a shard is not as this node believes", "shard", sh.ID(), "provided_token", s.what.Shards[i].Term.Token)
			sh.Lose()
		}
	}
}

// stopRefused stops a signer of which the store refuses what the log has, so that the others
// of its shard are shipped. What was not answered is unknown.
func (c *committer) stopRefused(sh *shard, sig service.Signer, cause error) {
	u, row := sh.log.dirty[sig], sig.Row()
	c.svc.Figures().Invariant()
	c.log.Error("the store refuses what the log has of this signer: it is stopped until nonce_setFloor gives it a safe floor",
		"signer", sig.Name(), "seen_version", row.Version, "version", u.base.Version, "seen_next", row.Next, "next", u.base.Next, "error", cause)
	sig.Stop()
	sh.log.refuse(sig.Name())
	for _, v := range u.waiting {
		v.Unknown(errStopped)
	}
	c.drop(sh, sig)
}

// drop forgets what the log has of a signer and the rows do not.
func (c *committer) drop(sh *shard, sig service.Signer) {
	u := sh.log.dirty[sig]
	c.unshipped -= u.changes
	delete(sh.log.dirty, sig)
	sig.FallBack(u.base, u.token, sh.log.epoch)
}

// inRow follows a row that is known to have a version of a signer, and tells the callers that waited
// for it.
func (c *committer) inRow(sh *shard, sig service.Signer, row nonce.Signer, token int64) {
	u, version := sh.log.dirty[sig], row.Version
	u.history = slices.DeleteFunc(u.history, func(v versioned[nonce.Past]) bool { return v.version <= version })
	u.requests = slices.DeleteFunc(u.requests, func(v versioned[nonce.Remembered]) bool { return v.version <= version })
	c.unshipped -= int(version - u.base.Version)
	u.changes -= int(version - u.base.Version)
	u.base, u.token, u.since, u.relist, u.handed = row, token, time.Now(), false, 0
	told := u.waiting
	u.waiting = nil
	for _, v := range told {
		if v.version > version {
			u.waiting = append(u.waiting, v)
			continue
		}
		v.Tell()
	}
	if version == sig.Row().Version {
		delete(sh.log.dirty, sig)
		sig.Ahead(false)
	}
}

var (
	errAfterLoss    = errors.New("the row of the signer shows less than the store confirmed")
	errKnownRequest = errors.New("the store has a request id that the log took for new")
)

// look reads signers whose shipment was left out: a shipment before it, whose outcome was
// unknown, may have brought the row to where it is, or another transaction has it locked. Where neither is
// so and a request id is known, or the row cannot be read, the signer is stopped.
func (c *committer) look(signers []service.Signer, known map[service.Signer]bool) {
	if len(signers) == 0 {
		return
	}
	needs := make([]nonce.SignerNeed, len(signers))
	for i, sig := range signers {
		needs[i].Signer = sig.Name()
	}
	loaded, err := c.svc.Load(needs)
	if err != nil {
		c.log.Debug("what was shipped cannot be read", "error", err)
		return
	}
	for i, sig := range signers {
		sh, l := c.of(sig.Shard()), &loaded.Signers[i]
		if sh.log == nil || sh.log.dirty[sig] == nil {
			continue // it is lost
		}
		u, term := sh.log.dirty[sig], sh.Term()
		switch {
		case l.Shard.Token != term.Token || l.Shard.Owner != c.svc.Holder() || !l.Shard.Performance:
			sh.Lose()
		case l.Err != nil:
			c.stopRefused(sh, sig, l.Err)
		case l.Signer.Version == u.base.Version && known[sig]:
			c.stopRefused(sh, sig, errKnownRequest)
		case l.Signer.Version == u.base.Version: // another transaction has it locked
		case l.Signer.Version > u.base.Version && l.Signer.Version <= sig.Row().Version && l.Token == term.Token:
			c.inRow(sh, sig, l.Signer, l.Token)
		default:
			c.svc.Figures().WentBack()
			c.log.Error("the store went back", "signer", sig.Name(),
				"version", l.Signer.Version, "seen_version", u.base.Version, "error", errAfterLoss)
			sh.Lose()
		}
	}
}

// flush ships what a shard's log has, and waits for it; off gives the shard the reliable engine
// with it. It tries a few times, because a shipment may be under way.
func (c *committer) flush(sh *shard, off bool) (whole bool) {
	for range 4 {
		lg := sh.log
		if lg == nil || !lg.serves {
			return false
		}
		s := &shipment{}
		c.pack(s, sh)
		s.what.Shards[0].Off = off
		s.what.Grant = nonce.Grant{LongestHold: c.grant().LongestHold}
		c.dispatch(s)
		lg.leaving = lg.leaving || off && s.err != nil && nonce.OutcomeOf(s.err) == nonce.Unknown
		c.shipped(s)
		switch {
		case s.err != nil && nonce.OutcomeOf(s.err) != nonce.Aborted:
			return false
		case s.err == nil && s.out.Whole[0]:
			return true
		}
	}
	return false
}
