package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

	burst  []outgoing          // the writer's
	wakers wakers              // the reader's
	late   map[uint64]struct{} // what was sent over it, given up, and may still be answered; guarded by peer.mu
}

// outgoing is an op that the writer reads.
type outgoing struct {
	op
	id   uint64
	sum  uint64
	gone bool // nobody waits for it, and it is not sent
}

// fill implements end: what clients want to hear, if that has changed, and ops, up to a bound. From
// when they are taken until they are settled the writer alone touches them.
func (l *link) fill(b []byte) []byte {
	p, want := l.peer, l.peer.r.interests.now()
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
		l.burst = append(l.burst, outgoing{op: s.op, id: s.id})
	}
	p.mu.Unlock()
	for i := range l.burst {
		b = l.burst[i].encode(b)
	}
	l.settle()
	return b
}

// encode appends a request.
func (o *outgoing) encode(b []byte) []byte {
	if o.gone = o.of.Gone(); o.gone {
		return b
	}
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, itRequest), o.id), o.path)
	begin := len(b)
	b = nonce.AppendRequest(b, o.q)
	o.sum = xxhash.Sum64(b[begin:])
	return b
}

// settle says of the ops of a burst that they are sent: they are about to be. Those that are not
// sent come out.
func (l *link) settle() {
	p := l.peer
	var back []returned
	p.mu.Lock()
	for i := range l.burst {
		o := &l.burst[i]
		s := p.inflight.find(o.id)
		s.stage, s.sum = sent, o.sum
		if o.gone {
			back = append(back, returned{of: s.of, at: s.at, verdict: nonce.Bounced, why: nonce.ErrGone})
			p.inflight.remove(s)
		}
		o.op = op{}
	}
	p.mu.Unlock()
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
	case len(l.late) > p.r.cfg.Queue:
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
	s := p.inflight.find(id)
	if s == nil {
		_, late := l.late[id]
		delete(l.late, id)
		p.mu.Unlock()
		if !late {
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
	b := returned{of: s.of, at: s.at, verdict: nonce.Answered}
	p.inflight.remove(s)
	p.mu.Unlock()
	if _, elsewhere := errors.AsType[*nonce.NotOwnerError](a.Err); elsewhere || a.Err == nonce.ErrFenced || a.Err == nonce.ErrDraining {
		b.verdict = nonce.Bounced
	}
	if a.Err == nonce.ErrDraining {
		p.markDraining(l)
	}
	p.r.giveBack(b, a, time.Now(), &l.wakers)
	return nil
}

// expire gives back what is too old.
func (l *link) expire(now time.Time) {
	p := l.peer
	var back []returned
	p.mu.Lock()
	for s := p.inflight.first(); s != nil && s.stage != writing && now.Sub(s.at) >= p.r.cfg.Timeout; s = p.inflight.first() {
		b := returned{of: s.of, at: s.at, verdict: nonce.Expired, why: errTooLate}
		if s.stage == queued {
			b.verdict, b.why = nonce.Bounced, nonce.ErrPeerAway
		} else {
			if l.late == nil {
				l.late = make(map[uint64]struct{})
			}
			l.late[s.id] = struct{}{}
		}
		back = append(back, b)
		p.inflight.remove(s)
	}
	p.mu.Unlock()
	p.r.returnAll(back)
}

// returned is an op that goes back through its Forwarded.
type returned struct {
	of      nonce.Forwarded
	at      time.Time // of Forward
	verdict nonce.Verdict
	why     error // unless it was answered
}

// giveBack ends an op's time with the router. The caller holds no lock, and wakes w after the last of
// its batch.
func (r *Router) giveBack(b returned, a *nonce.Result, now time.Time, w *wakers) {
	r.metrics.returned(resultOf(b.verdict), now.Sub(b.at))
	w.add(b.of.Return(a, b.verdict))
}

// returnAll gives back ops that end together without an answer, in this order.
func (r *Router) returnAll(all []returned) {
	if len(all) == 0 {
		return
	}
	var w wakers
	now := time.Now()
	for _, b := range all {
		r.giveBack(b, &nonce.Result{Err: b.why}, now, &w)
	}
	w.wake()
}

// wakers collects whom to wake after a batch, each once.
type wakers struct{ list []nonce.Waker }

// maxWakers bounds the search for what is there already.
const maxWakers = 128

func (w *wakers) add(one nonce.Waker) {
	if one == nil || slices.Contains(w.list, one) {
		return
	}
	if len(w.list) == maxWakers {
		w.wake()
	}
	w.list = append(w.list, one)
}

func (w *wakers) wake() {
	for i, one := range w.list {
		one.Wake()
		w.list[i] = nil
	}
	w.list = w.list[:0]
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
