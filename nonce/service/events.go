package service

import (
	"cmp"
	"sync"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// storeTime is the store's clock now, about: for what is told to people.
func (s *Service) storeTime() time.Time { return time.UnixMilli(s.clock.now().Earliest) }

// publishOwn hands on the events of holds that were over and of what the chain said.
func (s *Service) publishOwn(worker int, signer string, chain nonce.ChainSigner, plan *rules.Plan, now time.Time) {
	if len(plan.Own) == 0 {
		return
	}
	for i := range plan.Own {
		e := &plan.Own[i]
		e.Signer, e.Version, e.At = signer, plan.Signer.Version, now
	}
	if chain != nil {
		chain.Committed(plan.Own)
	}
	if s.sink != nil && s.sink.Watched(signer) {
		s.sink.Publish(worker, false, plan.Own)
	}
}

// publish hands on the events of a committed request.
func (s *Service) publish(worker int, t *task, a *rules.Answer, chain nonce.ChainSigner, version int64, now time.Time) {
	req := t.req
	if a.Err != nil || !a.Wrote {
		return
	}
	wanted := s.sink != nil && (t.events || s.sink.Watched(req.Signer))
	if !wanted && chain == nil {
		return
	}
	if !wanted { // the chain does not keep them
		buf := eventBuffers.Get().(*[]nonce.Event)
		*buf = events((*buf)[:0], req, a, version, now)
		chain.Committed(*buf)
		eventBuffers.Put(buf)
		return
	}
	all := events(nil, req, a, version, now)
	if chain != nil {
		chain.Committed(all)
	}
	if len(all) > 0 {
		s.sink.Publish(worker, t.events, all)
		t.events = false
	}
}

// eventBuffers are of events that nobody keeps.
var eventBuffers = sync.Pool{New: func() any { return new([]nonce.Event) }}

// events appends what a request changed.
func events(to []nonce.Event, req *nonce.Request, a *rules.Answer, version int64, at time.Time) []nonce.Event {
	e := nonce.Event{
		Type: req.Kind.Event(), Signer: req.Signer, Version: version, At: at, Nonce: req.Nonce, Attempt: cmp.Or(a.Attempt, req.Attempt),
	}
	switch req.Kind {
	case nonce.KindMarkUsed, nonce.KindMarkSigned:
		e.TxHash = req.TxHash
		if a.Replaced != (nonce.TxHash{}) {
			e.Type = nonce.EventReplaced
		}
		if a.Took {
			taken := e
			taken.Type, taken.TxHash = nonce.EventAllocated, nonce.TxHash{}
			return append(to, taken, e)
		}
	case nonce.KindRepair:
		e.Nonce, e.Attempt, e.Reason = a.Nonces[0], a.Attempts[0], nonce.ReasonRepair
	case nonce.KindMarkRecyclable:
		switch {
		case req.Keep && a.Status == nonce.Held:
			e.Type, e.TxHash, e.Reason = nonce.EventExtended, req.TxHash, req.Reason
		case a.Status == nonce.Consumed && a.Hashes == "":
			e.Reason = nonce.ReasonBelowFloor
		case a.Status == nonce.Consumed:
			e.Type, e.TxHash = nonce.EventUsed, a.Hashes.At(0)
		default:
			e.Reason = req.Reason
		}
	case nonce.KindSetFloor:
		e.Nonce, e.Attempt = a.Floor, 0
	case nonce.KindAllocate:
		for i := range a.Nonces {
			e.Nonce, e.Attempt = a.Nonces[i], a.Attempts[i]
			to = append(to, e)
		}
		return to
	}
	return append(to, e)
}
