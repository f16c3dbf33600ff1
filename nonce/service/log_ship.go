package service

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// shipment is what goes to the store at a time, and comes back with what became of it.
type shipment struct {
	what    nonce.Shipment
	logs    []*shardLog // of each of its shards
	shards  []*shard
	signers []*signer // of each write
	began   time.Time // before it was sent
	trims   []nonce.LogFence
	out     nonce.Shipped
	err     error
	refused error // why writes without a result were refused, each alone
}

// trim takes what earlier shipments brought out of the logs, after the shipment, whose answers
// somebody waits for.
func (w *worker) trim(s *shipment) {
	if len(s.trims) == 0 {
		return
	}
	ctx, cancel := w.svc.logTime()
	defer cancel()
	if err := w.svc.cfg.Log.Log.Trim(ctx, s.trims); err != nil { // the next one takes out more
		w.svc.log.Debug("a log was not trimmed", "error", err)
	}
}

// dispatch brings a shipment to the store. One that the store refuses for what a row would be
// is sent in halves, until the write at fault is alone. By these halves nothing is noted of
// the shards, which the next shipment does.
func (s *Service) dispatch(of *shipment) {
	of.began = time.Now()
	if of.out, of.err = s.shipOnce(of.what); !errors.Is(of.err, nonce.ErrInvariant) {
		return
	}
	of.refused, of.out = of.err, nonce.Shipped{Granted: make([]bool, len(of.what.Shards)), Whole: make([]bool, len(of.what.Shards))}
	of.out.Results = make([]nonce.WriteResult, len(of.what.Writes))
	of.err = s.shipHalves(of, 0, len(of.what.Writes))
}

func (s *Service) shipHalves(of *shipment, from, to int) error {
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
		out, err := s.shipOnce(part)
		if errors.Is(err, nonce.ErrInvariant) {
			of.refused, err = err, s.shipHalves(of, half[0], half[1])
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

func (s *Service) shipOnce(what nonce.Shipment) (nonce.Shipped, error) {
	ctx, cancel := s.timeout()
	defer cancel()
	return s.cfg.Log.Store.Ship(ctx, s.holder, what)
}

// serving are the worker's shards that have a log.
func (w *worker) serving() (all []*shard) {
	for _, sh := range w.svc.shards {
		if sh.worker == w && sh.log != nil && sh.log.serves {
			all = append(all, sh)
		}
	}
	return all
}

// pack adds what a shard's log has to a shipment.
func (w *worker) pack(s *shipment, sh *shard) {
	s.shards, s.logs = append(s.shards, sh), append(s.logs, sh.log)
	s.what.Generation = w.generation
	s.what.Shards = append(s.what.Shards, nonce.ShippedShard{Term: sh.shardTerm(), Head: sh.log.fence.Head})
	for sig := range sh.log.dirty {
		s.signers = append(s.signers, sig)
		s.what.Writes = append(s.what.Writes, w.folded(sig))
	}
}

// folded is the write that brings the row of a signer to where memory is.
func (w *worker) folded(sig *signer) nonce.Write {
	u := sig.unshipped
	write := nonce.Write{Name: sig.name, Term: sig.shard.shardTerm(), Generation: w.generation, Signer: sig.row}
	if write.Rise = sig.row.Version - u.base.Version - 1; write.Rise < 0 {
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
	passed := sig.listed != 0 && sig.listed <= w.svc.clock.now().Earliest || u.relist
	switch first := firstDeadline(&sig.row); {
	case first != 0 && (passed || sig.listed == 0 || first < sig.listed):
		write.DueAt = first
	case first == 0 && passed:
		write.DueAt = nonce.Unlisted
	}
	if u.watch != sig.watch {
		write.Watch = u.watch
	}
	w.ahead(sig, &write)
	return write
}

// ahead raises the ceiling of a signer that is handed out of, by its rate, so that nobody
// waits for it, and so that hand-outs go on when the store is away.
func (w *worker) ahead(sig *signer, write *nonce.Write) {
	u, lg, cfg := sig.unshipped, sig.shard.log, w.svc.cfg.Log
	if u.handed == 0 || write.Check || sig.row.Ceiling > 0 && sig.row.Epoch != lg.engine.Epoch {
		return
	}
	rate := float64(u.handed) / max(time.Since(u.since), cfg.ShipSoon).Seconds()
	sig.block = min(max(int64(1.5*rate*cfg.Grant.Seconds()), sig.block, minBlock), int64(w.svc.cfg.Rules.MaxLive))
	if write.Signer.Ceiling-write.Signer.Next < sig.block/2 {
		write.Signer.Ceiling = write.Signer.Next + sig.block
	}
	write.Signer.Epoch = lg.engine.Epoch
}

// shipped follows a shipment. It reports whether it is over whether its writes are in the store
// or not.
func (w *worker) shipped(s *shipment) {
	for i, lg := range s.logs {
		sh := s.shards[i]
		if sh.log != lg || s.err != nil {
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
		w.notShipped(s)
		return
	}
	w.noteStore(nil)
	w.svc.hears(time.Now())
	if s.refused == nil {
		w.svc.clock.observe(s.began, time.Now(), s.out.Now)
	}
	w.loseNotGranted(s)
	var moved []*signer
	known := make(map[*signer]bool) // signers of which the store has a request id that is to be new
	for i, sig := range s.signers {
		if sig.unshipped == nil || !slices.Contains(s.logs, sig.shard.log) {
			continue // it was lost meanwhile
		}
		write := &s.what.Writes[i]
		if s.out.Results[i] != nonce.NotOwner && write.Believed() != sig.unshipped.base.Version {
			continue // a shipment by hand has overtaken it: this one says nothing of what is there now
		}
		switch s.out.Results[i] {
		case nonce.Applied:
			if write.DueAt != 0 {
				sig.listed = max(0, write.DueAt)
			}
			if write.Watch.Kind != nonce.WatchAsIs {
				sig.watch = write.Watch
			}
			sig.row.Ceiling, sig.row.Epoch = max(sig.row.Ceiling, write.Signer.Ceiling), max(sig.row.Epoch, write.Signer.Epoch)
			w.inRow(sig, write.Signer, write.Term.Token)
		case 0:
			w.stopRefused(sig, s.refused)
		case nonce.NotOwner:
			w.svc.log.Warn("fenced", "signer", sig.name, "op", "ship", "shard", sig.shard.id, "provided_token", write.Term.Token, "node", w.svc.holder.Node)
			sh := sig.shard
			w.lose(sh)
			sh.unsure = true
		default:
			moved, known[sig] = append(moved, sig), s.out.Results[i] == nonce.IDKnown
		}
	}
	w.look(moved, known)
}

// notShipped follows a shipment that failed. It is tried again.
func (w *worker) notShipped(s *shipment) {
	if nonce.OutcomeOf(s.err) != nonce.Aborted {
		w.noteStore(s.err)
		return
	}
	w.noteStore(nil)
	w.svc.log.Warn("what the log has was not shipped; it is tried again", "signers", len(s.what.Writes), "error", s.err)
}

// loseNotGranted gives up the shards whose rows are not as this node believes, also where the
// shipment had no write that would tell: a shipment before it whose answer was lost may have
// given the shard the reliable engine.
func (w *worker) loseNotGranted(s *shipment) {
	for i, sh := range s.shards {
		if s.refused == nil && sh.log == s.logs[i] && !s.out.Granted[i] {
			w.svc.log.Warn("the row of a shard is not as this node believes", "shard", sh.id, "provided_token", s.what.Shards[i].Term.Token)
			w.lose(sh)
			sh.unsure = true
		}
	}
}

// stopRefused stops a signer of which the store refuses what the log has, so that the others
// of its shard are shipped. What nobody was told is unknown.
func (w *worker) stopRefused(sig *signer, cause error) {
	u := sig.unshipped
	w.svc.fig.Invariant()
	w.svc.log.Error("the store refuses what the log has of this signer: it is stopped until nonce_setFloor gives it a safe floor",
		"signer", sig.name, "seen_version", sig.row.Version, "version", u.base.Version, "seen_next", sig.row.Next, "next", u.base.Next, "error", cause)
	sig.stop()
	sig.shard.log.refuse(sig.name)
	for _, v := range u.waiting {
		w.refuse(v.task, &nonce.UnavailableError{Outcome: nonce.Unknown, Err: errStopped})
	}
	w.drop(sig)
}

// drop forgets what the log has of a signer and the rows do not.
func (w *worker) drop(sig *signer) {
	u := sig.unshipped
	w.logs.unshipped -= int(sig.row.Version - u.base.Version)
	sig.safe = max(sig.safe, sig.row.Next) // for when the store went back
	sig.logged, sig.loggedIn = sig.row.Version, sig.shard.log.engine.Epoch
	sig.unshipped = nil
	delete(sig.shard.log.dirty, sig)
	w.memory.set(sig, u.base, u.token)
}

// inRow follows a row that is known to have a version of a signer, and tells those who waited
// for it.
func (w *worker) inRow(sig *signer, row nonce.Signer, token int64) {
	u := sig.unshipped
	version := row.Version
	u.history = slices.DeleteFunc(u.history, func(v versioned[nonce.Past]) bool { return v.version <= version })
	u.requests = slices.DeleteFunc(u.requests, func(v versioned[nonce.Remembered]) bool { return v.version <= version })
	w.logs.unshipped -= int(version - u.base.Version)
	u.base, u.token, u.since, u.relist, u.handed = row, token, time.Now(), false, 0
	told := u.waiting
	u.waiting = nil
	for _, v := range told {
		if v.version > version {
			u.waiting = append(u.waiting, v)
			continue
		}
		w.tellLate(v)
	}
	if version == sig.row.Version {
		sig.unshipped = nil
		delete(sig.shard.log.dirty, sig)
	}
}

func (w *worker) tellLate(v untold) {
	if w.tooSoon(v.task, &v.answer) {
		return
	}
	v.task.answer(&v.answer, w.svc.clock.now())
	w.finish(v.task)
}

var errAfterLoss = errors.New("the row of the signer shows less than the store confirmed")

var errKnownRequest = errors.New("the store has a request id that the log took for new")

// look reads signers whose shipment was left out: a shipment before it, whose outcome was
// unknown, may have brought the row to where it is, or somebody has it locked. Where neither is
// so and a request id is known, or the row cannot be read, the signer is stopped.
func (w *worker) look(signers []*signer, known map[*signer]bool) {
	if len(signers) == 0 {
		return
	}
	needs := make([]nonce.SignerNeed, len(signers))
	for i, sig := range signers {
		needs[i] = nonce.SignerNeed{Signer: sig.name}
	}
	loaded, err := w.svc.load(needs)
	if err != nil {
		w.svc.log.Debug("what was shipped cannot be read", "error", err)
		return
	}
	for i, sig := range signers {
		l, u := &loaded.Signers[i], sig.unshipped
		switch {
		case u == nil || sig.shard.log == nil: // it is lost
		case l.Shard.Token != sig.shard.term.Load() || l.Shard.Owner != w.svc.holder || !l.Shard.Performance:
			w.lose(sig.shard)
		case l.Err != nil:
			w.stopRefused(sig, l.Err)
		case l.Signer.Version == u.base.Version && known[sig]:
			w.stopRefused(sig, errKnownRequest)
		case l.Signer.Version == u.base.Version: // somebody has it locked
		case l.Signer.Version > u.base.Version && l.Signer.Version <= sig.row.Version && l.Token == sig.shard.term.Load():
			w.inRow(sig, l.Signer, l.Token)
		default:
			w.svc.fig.WentBack()
			w.svc.log.Error("the store went back", "signer", sig.name, "version", l.Signer.Version, "seen_version", u.base.Version, "error", errAfterLoss)
			w.lose(sig.shard)
		}
	}
}

// flush ships what a shard's log has, and waits for it; off gives the shard the reliable engine
// with it. It tries a few times, because a shipment may be under way.
func (w *worker) flush(sh *shard, off bool) (whole bool) {
	for range 4 {
		lg := sh.log
		if lg == nil || !lg.serves {
			return false
		}
		s := &shipment{}
		w.pack(s, sh)
		s.what.Shards[0].Off = off
		s.what.Grant = nonce.Grant{LongestHold: w.svc.cfg.MaxHold}
		w.svc.dispatch(s)
		lg.leaving = lg.leaving || off && s.err != nil && nonce.OutcomeOf(s.err) == nonce.Unknown
		w.shipped(s)
		switch {
		case s.err != nil && nonce.OutcomeOf(s.err) != nonce.Aborted:
			return false
		case s.err == nil && s.out.Whole[0]:
			return true
		}
	}
	return false
}

// tooSoon keeps an answer that must not be told yet, by the store's clock.
func (w *worker) tooSoon(t *task, a *rules.Answer) bool {
	now := w.svc.clock.now().Earliest
	if a.After <= now {
		return false
	}
	if t.where != waiting {
		t.move(waiting)
	}
	w.logs.later = append(w.logs.later, untold{task: t, answer: *a})
	return true
}

// wakeLater has the worker woken when the first of the answers that wait may be told, about: the
// store's clock, as it is known, is slower than the timer, which is then set again.
func (w *worker) wakeLater() {
	if len(w.logs.later) == 0 {
		return
	}
	first := slices.MinFunc(w.logs.later, func(a, b untold) int { return cmp.Compare(a.answer.After, b.answer.After) }).answer.After
	w.logs.lateTimer.Reset(time.Duration(max(1, first-w.svc.clock.now().Earliest)) * time.Millisecond)
}

// logDue reports whether there is something to do for logs.
func (w *worker) logDue() bool {
	if w.svc.cfg.Log == nil {
		return w.laterDue()
	}
	now := time.Now()
	if w.logs.shipper.isDue(now) || w.storeQuiet() {
		return true
	}
	for _, sh := range w.owned() {
		if lg := sh.log; lg != nil && lg.due(now) {
			return true
		}
	}
	return w.laterDue()
}

func (w *worker) laterDue() bool {
	now := w.svc.clock.now().Earliest
	return slices.ContainsFunc(w.logs.later, func(v untold) bool { return v.answer.After <= now })
}

// tendShipping follows a shipment that came back, and tells who waited for a time.
func (w *worker) tendShipping(arrived *shipment) {
	w.checkStore()
	if arrived != nil {
		w.logs.shipper.underWay = false
		w.shipped(arrived)
	}
	later := w.logs.later
	w.logs.later = nil
	for _, v := range later {
		w.tellLate(v)
	}
}
