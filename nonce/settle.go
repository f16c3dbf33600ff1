package nonce

import (
	"slices"
	"time"

	"noncegate/lease"
)

// settle deals with commits whose outcome is unknown. Every signer is acquired
// anew, with a higher token, before anything about it is read or answered: from
// then on the late commit is either visible or refused, and only then does
// reading settle it. Ops that did not happen go on; those that did are answered;
// where the rows do not tell, the answer is unknown.
func (sh *shard) settle(groups []*group, cause error) []*group {
	needs := make([]Need, len(groups))
	for i, g := range groups {
		g.st.setOwned(sh, false)
		g.byID = true
		needs[i], _ = sh.need(g, true)
		for _, op := range g.ops[:g.count] {
			if op.Kind == KindAllocate || op.Kind == KindRepair {
				needs[i].Nonces = append(needs[i].Nonces, op.Nonces...)
			}
		}
	}
	snaps, started, err := sh.tryAcquire(groups, needs)
	if err != nil && OutcomeOf(err) == Aborted && len(groups) > 1 {
		var next []*group
		for _, g := range groups {
			next = append(next, sh.settle([]*group{g}, cause)...)
		}
		return next
	}
	next := groups[:0]
	for i, g := range groups {
		if err != nil {
			g.leaveUnknown(sh, cause)
			continue
		}
		if snaps[i].verdict != FastDone {
			g.leaveUnknown(sh, cause)
			sh.notTaken(g, &snaps[i])
			continue
		}
		if sh.settled(g, &snaps[i].Snapshot, cause); len(g.ops) == 0 {
			continue
		}
		if sh.acquired(g, &snaps[i].Snapshot, started); g.st.owned && len(g.ops) > 0 {
			next = append(next, g)
		}
	}
	return next
}

// leaveUnknown answers a group whose commit could not be settled. What wrote
// nothing, or was not part of the commit, did not happen.
func (g *group) leaveUnknown(sh *shard, cause error) {
	for i, op := range g.ops {
		if i < g.count && op.wrote {
			op.Err = &UnavailableError{Outcome: Unknown, Err: cause}
			sh.finish(op)
			g.ops[i] = nil
		}
	}
	g.compact()
	g.fail(sh, &UnavailableError{Outcome: NotSent, Err: cause})
}

// compact removes the ops that have ended.
func (g *group) compact() {
	left := g.ops[:0]
	for _, op := range g.ops {
		if op != nil {
			left = append(left, op)
		}
	}
	g.ops, g.count = left, 0
}

// settled judges each op of the unknown commit by a snapshot taken under a
// higher token.
func (sh *shard) settled(g *group, s *Snapshot, cause error) {
	st := g.st
	if st.fast() && s.Engine == Performance && !s.Acquired {
		g.leaveUnknown(sh, cause) // the row is behind Redis, which another node has now
		return
	}
	if st.wentBack(s, st.term.Token) {
		g.leaveUnknown(sh, cause)
		sh.halt(g, s)
		return
	}
	if s.Version == st.version {
		g.count = 0 // no write to this signer since: nothing of it happened
		return
	}
	rows := make(map[int64]Row, len(s.Rows))
	for _, row := range s.Rows {
		rows[row.Nonce] = row
	}
	for i, op := range g.ops[:g.count] {
		if !op.wrote {
			continue
		}
		v := op.verdict(s, rows, g.draft.change.Token)
		if v == runAgain && op.recovered && !s.Acquired {
			v = cannotTell // it happened, but its answer is another node's to give
		}
		if v == runAgain && op.Kind == KindMarkRecyclable && EpochOf(s.Version) != EpochOf(st.version) {
			v = cannotTell // Redis may have handed it out again before it was lost
		}
		if (op.Kind == KindExtend || op.Kind == KindMarkSigned) && rows[op.Nonce].Status != Consumed && s.Doubtful(op.Nonce, s.Now) {
			v = cannotTell // the same
		}
		switch v {
		case didHappen:
			sh.svc.publish(sh.index, op, st.chain, st.version+1, s.Now)
			sh.happened(g, op, s)
			g.ops[i] = nil
		case cannotTell:
			op.Err = &UnavailableError{Outcome: Unknown, Err: cause}
			sh.finish(op)
			g.ops[i] = nil
		case runAgain:
		}
	}
	g.compact()
}

// happened ends an op that an unknown commit has done, as if its answer had come now.
func (sh *shard) happened(g *group, op *Op, s *Snapshot) {
	sh.svc.cfg.open.settle(op)
	var a answer
	waits := false
	switch {
	case !g.st.fast() || s.Engine != Performance:
		a, waits = sh.svc.doubted(&s.Standing, op, s.Now)
	case op.Kind == KindAllocate && !g.st.granted(time.Now()):
		op.Err = &UnavailableError{Outcome: Unknown, Err: errGrantOver}
	default:
		a, waits = sh.flushes(op, g.st.version+1)
	}
	if a.op = op; !waits || !sh.svc.answers.hold(g.st.id, a) {
		sh.finish(op)
	}
}

// verdict is what the rows say of an op whose commit was unknown.
type verdict uint8

const (
	runAgain   verdict = iota // it did not happen, or repeating it answers it
	didHappen                 // the op's result is complete
	cannotTell                // unknown stays unknown
)

// verdict judges one op. token is the one it was tried under.
func (op *Op) verdict(s *Snapshot, rows map[int64]Row, token int64) verdict {
	switch op.Kind {
	case KindAllocate, KindRepair:
		switch {
		case op.RequestID == "" && op.Kind == KindRepair:
			return op.repairVerdict(s, rows, token)
		case op.RequestID == "":
			return op.allocateVerdict(s, rows, token)
		}
		for _, req := range s.Requests {
			if req.ID == op.RequestID {
				op.recovered = true
				op.made = slices.Equal(req.Nonces, op.Nonces) && slices.Equal(req.Attempts, op.Attempts)
			}
		}
	case KindMarkUsed, KindMarkRecyclable:
		return op.markVerdict(rows)
	case KindExtend, KindMarkSigned:
		return op.holdVerdict(rows, s.Now, token)
	case KindSetFloor:
		op.recovered = s.Floor >= op.askedFloor
	}
	return runAgain
}

// allocateVerdict: an allocate without request id did not happen if a row is
// below the attempt that was tried, happened if the row carries the token of
// then, and is unknown otherwise, also when the row was pruned. All its rows were
// in one transaction, so the first tells.
func (op *Op) allocateVerdict(s *Snapshot, rows map[int64]Row, token int64) verdict {
	row, ok := rows[op.Nonces[0]]
	switch {
	case !ok && op.Nonces[0] < s.Pruned:
		return cannotTell
	case !ok || row.Attempt < op.Attempts[0]:
		return runAgain
	case row.Attempt == op.Attempts[0] && row.Token == token && row.Status == Held:
		op.HeldUntil = row.HeldUntil
		op.HoldLeft = max(0, row.HeldUntil.Sub(s.Now))
		return didHappen
	}
	return cannotTell
}

// markVerdict: a row that shows the mark done answers it here and now, since
// later it may show the next holder; one that shows it undone lets it run again;
// any other cannot tell.
func (op *Op) markVerdict(rows map[int64]Row) verdict {
	row, ok := rows[op.Nonce]
	if !ok || row.Attempt != op.Attempt {
		return cannotTell
	}
	used := op.Kind == KindMarkUsed
	switch {
	case row.Status == Held, row.Status == Released && used,
		row.Status == Consumed && used && !recorded(row, op.TxHash):
		return runAgain
	case row.Status == Consumed && !used && (row.Reason != ReasonBelowFloor || row.TxHash != TxHash{}):
		return cannotTell
	}
	op.Status = row.Status
	op.Hashes = allHashes(row.TxHash, row.Replaced)
	return didHappen
}

// recorded reports whether a row has the hash; any row has none.
func recorded(row Row, hash TxHash) bool {
	return hash == TxHash{} || row.TxHash == hash || row.Replaced.Contains(hash)
}

// holdVerdict: a hash that the row has was recorded, and a deadline that was written
// under the token of then, and is another than before, is the new one. While the hold is
// the one it was, the op may run again.
func (op *Op) holdVerdict(rows map[int64]Row, now time.Time, token int64) verdict {
	row, ok := rows[op.Nonce]
	signed := op.Kind == KindMarkSigned
	switch {
	case signed && op.tookNonce && (!ok || row.Attempt < op.Attempt):
		return runAgain
	case !ok || row.Attempt != op.Attempt:
		return cannotTell
	case signed && row.TxHash != TxHash{} && recorded(row, op.TxHash), !signed && row.Status == Held && row.Token == token && !row.HeldUntil.Equal(op.endsAt):
		op.Status, op.Hashes = row.Status, allHashes(row.TxHash, row.Replaced)
		if row.Status == Held {
			op.HeldUntil, op.HoldLeft = row.HeldUntil, max(0, row.HeldUntil.Sub(now))
		}
		return didHappen
	case row.Status == Held || signed && row.Status == Consumed:
		return runAgain
	}
	return cannotTell
}

// repairVerdict judges a repair as an allocate of one nonce is judged, whose row may
// have been anything before.
func (op *Op) repairVerdict(s *Snapshot, rows map[int64]Row, token int64) verdict {
	if row, ok := rows[op.Nonces[0]]; ok && row.Attempt < op.Attempts[0] || !ok && op.Nonces[0] >= s.Pruned {
		return runAgain
	}
	return op.allocateVerdict(s, rows, token)
}

// notOwner turns a lease that could not be had into the error of its ops.
func (s *Service) notOwner(g lease.Grant) error {
	if s.meet(g) {
		return ErrFenced
	}
	return &NotOwnerError{Node: g.Holder.Node, URL: g.URL}
}

// meet stops the service when a lease shows a later start of its node id.
func (s *Service) meet(g lease.Grant) bool {
	if g.Holder.Node != s.holder.Node || g.Holder.Incarnation <= s.holder.Incarnation {
		return false
	}
	s.Halt(lease.ErrSuperseded)
	return true
}
