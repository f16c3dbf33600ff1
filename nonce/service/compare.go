package service

import (
	"maps"
	"math"
	"slices"

	"noncegate/nonce"
)

// compareChunk bounds the signers that are read at a time.
const compareChunk = 1000

// noGeneration is no generation of any store. A worker that has it commits nothing, and compares
// everything before its next batch.
const noGeneration = math.MaxUint64

// noStay is no stay of any shard: a signer of it is read, and compared, before it is used.
const noStay = math.MaxUint64

// compareAll follows a store that may have become another one: a failover to a copy that
// lacks commits, or a restore. Every shard is acquired again, and every signer that is
// remembered is compared with its row: what went back is stopped, and what others wrote is
// forgotten. While the store does not answer, the shards are not this node's.
func (w *worker) compareAll() {
	if w.hadAt != w.generation { // before rows of the other history say whose the shards were
		w.had, w.hadAt = make(map[*shard]bool), w.generation
		for _, sh := range w.svc.shards {
			w.had[sh] = sh.Row().Owner == w.svc.holder
		}
	}
	w.svc.log.Warn("the store may have become another one; what is remembered is compared with it", "signers", len(w.memory.signers))
	shards := w.owned()
	for i, got := range w.svc.table.Acquire(shards) {
		if got.Err != nil {
			w.svc.log.Error("a shard could not be acquired again", "shard", shards[i].ID, "error", got.Err)
			w.svc.table.Lose(shards[i])
		}
	}
	w.compareThose(func(*signer) bool { return true })
}

// compareThose compares some of the signers that are remembered. While that cannot be done,
// nothing is committed.
func (w *worker) compareThose(which func(*signer) bool) {
	remembered := slices.DeleteFunc(slices.Collect(maps.Values(w.memory.signers)), func(sig *signer) bool { return !which(sig) })
	for chunk := range slices.Chunk(remembered, compareChunk) {
		if !w.compare(chunk) {
			w.generation = noGeneration // the next batch compares everything
			return
		}
	}
}

// compare reads some signers; false: the store did not answer.
func (w *worker) compare(signers []*signer) bool {
	needs := make([]nonce.SignerNeed, len(signers))
	for i, sig := range signers {
		needs[i] = nonce.SignerNeed{Signer: sig.name}
	}
	loaded, err := w.svc.load(needs)
	if err != nil {
		w.svc.log.Error("what is remembered could not be compared", "error", err)
		return false
	}
	for i, sig := range signers {
		switch l := &loaded.Signers[i]; {
		case l.Err != nil: // it is refused, and compared when its row can be read again
			if !sig.stopped {
				sig.disown()
				sig.stay = noStay
			}
		case sig.stopped:
			w.set(sig, l.Signer, l.Token)
		case rowWentBack(sig, l):
			w.stopSigner(sig, l)
		case w.behind > 0 && (l.Signer.Version != sig.row.Version || !w.had[sig.shard]): // another node may have written more
			w.stopUnseen(sig, l)
		case l.Signer.Version != sig.row.Version:
			w.memory.forget(sig)
		}
	}
	return true
}

// compared follows a row of a signer that is remembered. Where it is another, a node in mode
// basic wrote it, or the store went back: then the signer is stopped, which is reported.
func (w *worker) compared(sig *signer, l *nonce.LoadedSigner) (stopped bool) {
	switch {
	case sig.row.Version == l.Signer.Version && sig.token == l.Token:
	case !sig.stopped && rowWentBack(sig, l):
		w.stopSigner(sig, l)
		return true
	default:
		w.set(sig, l.Signer, l.Token)
		sig.listed, sig.watch = 0, nonce.Watch{} // who wrote it may have listed it otherwise
	}
	return false
}

// set replaces what is remembered of a signer. A floor at or above all that was seen of it
// lets one that is stopped serve again.
func (w *worker) set(sig *signer, row nonce.Signer, token int64) {
	w.memory.set(sig, row, token)
	switch {
	case !sig.stopped:
	case row.Floor >= sig.safe && !sig.unseen:
		w.svc.log.Warn("a new floor lets a stopped signer serve again", "signer", sig.name, "floor", row.Floor)
		sig.stopped, sig.confirmed = false, 0
		sig.shard.Stopped.Add(-1)
	default: // the row may be of a commit that was confirmed before the store went back
		sig.safe = max(sig.safe, row.Next)
	}
}

// rowWentBack reports whether a row shows less than was remembered: a lower version or cursor, or
// the same version with another content. The last happens when the store lost commits and
// others were made in their place. What the performance engine of its shard had confirmed is
// in the row once the shard has the reliable engine again, unless a loss was declared, or another owner
// stopped the signer because the store refused it, and its floor is safe by now.
func rowWentBack(sig *signer, l *nonce.LoadedSigner) bool {
	if l.Signer.Version < sig.confirmed && l.Signer.Floor < sig.safe && !l.Shard.Performance && l.Shard.Epoch <= sig.confirmedIn {
		return true
	}
	return l.Signer.Version < sig.row.Version || l.Signer.Next < sig.row.Next ||
		l.Signer.Version == sig.row.Version && (l.Token != sig.token || !sameLive(l.Signer.Live, sig.row.Live))
}

// sameLive compares entries by what they say.
func sameLive(a, b []nonce.Entry) bool {
	return slices.EqualFunc(a, b, func(x, y nonce.Entry) bool {
		return x.Nonce == y.Nonce && x.Attempt == y.Attempt && x.Status == y.Status && x.Until == y.Until
	})
}

// stopSigner stops a signer whose row shows less than was seen. Handing out from it
// could give a nonce two holders. A floor at or above all that was seen, once
// committed, lets it serve again.
func (w *worker) stopSigner(sig *signer, l *nonce.LoadedSigner) {
	sig.stop()
	w.svc.fig.WentBack()
	w.svc.log.Error("the store went back: this signer is stopped until nonce_setFloor gives it a safe floor",
		"signer", sig.name, "seen_version", max(sig.row.Version, sig.confirmed), "version", l.Signer.Version,
		"seen_next", sig.safe, "next", l.Signer.Next)
	w.memory.set(sig, l.Signer, l.Token)
}

// stopUnseen stops a signer of which this node does not know what the store lost, if anything. One that is
// not stored may have been lost whole, and a floor of 0 would change nothing.
func (w *worker) stopUnseen(sig *signer, l *nonce.LoadedSigner) {
	sig.unseen, sig.safe = true, max(sig.safe, 1)
	w.stopSigner(sig, l)
}

// stop has nothing but a safe floor change the signer.
func (s *signer) stop() {
	if !s.stopped {
		s.shard.Stopped.Add(1)
	}
	s.stopped, s.safe = true, max(s.safe, s.row.Next)
}
