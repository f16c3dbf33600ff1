package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"noncegate/nonce"
)

// burstOps bounds the ops that one message takes.
const burstOps = 256

var errTooLate = errors.New("the node that owns the signer did not answer in time")

// link is one connection to another node, which keep runs.
type link struct {
	*pipe
	peer        *peer
	url         string // as the node advertises it
	incarnation int64  // of the node, by the registry when it was dialled

	burst  []*slot // the writer's
	wakers wakers  // the reader's
}

// fill implements end: what clients want to hear, if that has changed, and ops, up to a bound. From
// when they are taken until they are settled the writer alone touches them.
func (l *link) fill(b []byte) []byte {
	p, want := l.peer, l.peer.r.interest.Load()
	p.mu.Lock()
	switch {
	case want.empty() && p.subs.asked.empty(): // nothing can be missed
		p.subs.gap = noGap
	case p.subs.asked != want:
		p.subs.asked = want
		b = want.append(b)
	}
	l.burst = l.burst[:0]
	for len(l.burst) < burstOps {
		s := p.inflight.takeQueued()
		if s == nil {
			break
		}
		l.burst = append(l.burst, s)
	}
	p.mu.Unlock()
	for _, s := range l.burst {
		b = s.encode(b)
	}
	l.settle()
	return b
}

// encode appends a request, if it is sent.
func (s *slot) encode(b []byte) []byte {
	if s.gone = s.of.Gone(); s.gone {
		return b
	}
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, itRequest), s.id), s.path)
	begin := len(b)
	b = nonce.AppendRequest(b, s.q)
	s.sum = xxhash.Sum64(b[begin:])
	return b
}

// settle says of the ops of a burst that they are sent: they are about to be. Those that are not
// sent come out.
func (l *link) settle() {
	p := l.peer
	var back []*slot
	p.mu.Lock()
	for _, s := range l.burst {
		if s.stage = sent; s.gone {
			back = append(back, p.inflight.end(s, nonce.Bounced, nonce.ErrGone))
		}
	}
	p.mu.Unlock()
	clear(l.burst)
	p.r.returnAll(back)
}

// wrote implements end.
func (l *link) wrote() {}

// look implements end.
func (l *link) look(now time.Time) error {
	l.expire(now)
	p := l.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.node.URL != l.url:
		return errMoved
	case p.inflight.late() > p.r.cfg.Queue:
		return errSilent
	}
	return nil
}

// take implements end: results, and events.
func (l *link) take(message []byte) error {
	defer l.wakers.wake()
	f := &frame{b: message}
	for len(f.b) > 0 && f.err == nil {
		var err error
		switch tag := f.tag(); tag {
		case itResult:
			id, sum := f.number(), f.sum()
			var a nonce.Result
			if read(f, nonce.ReadResult, &a); f.err == nil {
				err = l.answered(id, sum, &a)
			}
		case itEvent:
			missed := f.number()
			var e nonce.Event
			if read(f, nonce.ReadEvent, &e); f.err == nil {
				local := &l.peer.r.local
				local.Events.Remote(local.Service.WorkerIndex(e.Signer), e, int64(min(missed, 1<<62)))
			}
		case itHave:
			if seq := f.number(); f.err == nil {
				err = l.peer.have(seq)
			}
		default:
			err = nonsense("an item %q", tag)
		}
		if err != nil {
			return err
		}
	}
	return f.err
}

// answered gives an op back with its result. Until that is known to fit, the op stays where it is,
// so that it comes back in its order if it does not.
func (l *link) answered(id, sum uint64, a *nonce.Result) error {
	p := l.peer
	p.mu.Lock()
	s, made := p.inflight.byID[id]
	if s == nil { // too late: it harms nobody
		delete(p.inflight.byID, id)
		p.mu.Unlock()
		if !made {
			return nonsense("a result for the request number %d, which was not made", id)
		}
		return nil
	}
	if s.stage != sent || s.sum != sum {
		p.mu.Unlock()
		return nonsense("a result of another request, or of one that was not sent")
	}
	if err := fits(s.q, a); err != nil {
		p.mu.Unlock()
		return err
	}
	verdict := nonce.Answered
	if _, elsewhere := errors.AsType[*nonce.NotOwnerError](a.Err); elsewhere || a.Err == nonce.ErrFenced || a.Err == nonce.ErrDraining {
		verdict = nonce.Bounced
	}
	p.inflight.end(s, verdict, a.Err)
	if a.Err == nonce.ErrDraining {
		p.leftLocked(l.incarnation)
	}
	p.mu.Unlock()
	p.r.giveBack(s, a, time.Now(), l.wakers)
	return nil
}

// expire gives back what is too old.
func (l *link) expire(now time.Time) {
	p := l.peer
	var back []*slot
	p.mu.Lock()
	for s := p.inflight.first(); s != nil && s.stage != writing && now.Sub(s.at) >= p.r.cfg.Timeout; s = p.inflight.first() {
		if s.stage == queued {
			p.inflight.end(s, nonce.Bounced, nonce.ErrPeerAway)
		} else {
			p.inflight.end(s, nonce.Expired, errTooLate)
			p.inflight.byID[s.id] = nil
		}
		back = append(back, s)
	}
	p.mu.Unlock()
	p.r.returnAll(back)
}

// giveBack ends an op's time with the router. The caller holds no lock, and wakes w after the last of
// its batch.
func (r *Router) giveBack(s *slot, a *nonce.Result, now time.Time, w wakers) {
	r.metrics.forwarded.Inc(results[s.verdict])
	if s.verdict == nonce.Answered {
		r.metrics.took.Observe(now.Sub(s.at).Seconds())
	}
	if one := s.of.Return(a, s.verdict); one != nil {
		w[one] = struct{}{}
	}
}

// returnAll gives back ops that end together without an answer, in this order.
func (r *Router) returnAll(all []*slot) {
	if len(all) == 0 {
		return
	}
	w, now := make(wakers), time.Now()
	for _, s := range all {
		r.giveBack(s, &nonce.Result{Err: s.why}, now, w)
	}
	w.wake()
}

// wakers are whom to wake after a batch, each once.
type wakers map[nonce.Waker]struct{}

func (w wakers) wake() {
	for one := range w {
		one.Wake()
	}
	clear(w)
}

// inquiry is a read that is forwarded for whoever waits for it.
type inquiry struct {
	res     nonce.Result
	verdict nonce.Verdict
	done    chan struct{}
}

// Gone implements nonce.Forwarded.
func (*inquiry) Gone() bool { return false }

// Return implements nonce.Forwarded.
func (i *inquiry) Return(r *nonce.Result, v nonce.Verdict) nonce.Waker {
	i.res, i.verdict = *r, v
	close(i.done)
	return nil
}

// Ask asks a node for what the chain says of a signer that it owns, by a status or list. It goes behind
// what was forwarded there before, waits no longer than an op that is forwarded, and takes at most
// half of the slots. An error means that the owner has not said it.
func (r *Router) Ask(node, url string, q nonce.Request) (*nonce.ChainSaid, error) {
	if !r.Reaches(node) {
		return nil, nonce.ErrPeerAway
	}
	q.ChainOnly, q.WithHolders = true, false
	i := &inquiry{done: make(chan struct{})}
	if err := r.Forward(node, url, &q, 0, i); err != nil {
		return nil, err
	}
	<-i.done
	if i.verdict != nonce.Answered || i.res.Err != nil {
		return nil, fmt.Errorf("asking node %.128q: %w", node, i.res.Err)
	}
	return i.res.Said, nil
}
