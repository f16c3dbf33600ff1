package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/internal/events"
	"noncegate/nonce"
)

const (
	// maxEvents bounds the events that wait for a link to be written. More are left out and counted.
	maxEvents = 4096
	// maxBehind times the requests that a node may have in flight is how many answers may wait for
	// it. Only a node that sends more than it may and does not read reaches that.
	maxBehind = 4
)

var (
	errGivenUp = errors.New("the node has opened a later link")
	errBehind  = errors.New("the node takes no answers")
)

// inbound is a link that another node has opened.
type inbound struct {
	*pipe
	r       *Router
	from    greeted
	entered time.Time // guarded by door.mu
	ctx     context.Context
	cancel  context.CancelCauseFunc
	share   *backpressure.Share // its requests in flight
	gone    atomic.Bool         // nobody reads answers any more
	paths   paths
	lines   lines
	sub     *events.Subscription // the reader's; nil: its clients want nothing
	writing []*call              // the writer's: what it writes just now

	mu     sync.Mutex // guards what follows
	out    []reply    // in the order in which it leaves
	events int        // of out
	ended  bool       // what is answered from now on is thrown away
}

// reply is one thing that is to be sent: the answer to a call, an event, or which interest is served.
type reply struct {
	call   *call
	event  *nonce.Event
	missed int64
	have   uint64
}

func (r *Router) newInbound(ws *websocket.Conn, from greeted) *inbound {
	in := &inbound{
		pipe: newPipe(&r.cfg, ws, make(chan struct{}, 1)), r: r, from: from,
		share: backpressure.NewShare(r.cfg.Queue), paths: newPaths(),
	}
	in.ctx, in.cancel = context.WithCancelCause(r.ctx)
	in.lines.bySigner = make(map[string]*line)
	return in
}

// giveUp ends the link. What was read of it and has not begun is not done.
func (in *inbound) giveUp() {
	in.gone.Store(true)
	in.cancel(errGivenUp)
}

// finish follows the end of the link.
func (in *inbound) finish() {
	in.gone.Store(true)
	in.cancel(nil)
	if in.sub != nil {
		in.sub.Close()
	}
	in.mu.Lock()
	left := in.out
	in.out, in.ended = nil, true
	in.mu.Unlock()
	for _, o := range left {
		if o.call != nil {
			o.call.release()
		}
	}
	in.wrote() // what a write that failed had
}

// take implements end: requests, and what clients of the node want to hear of.
func (in *inbound) take(message []byte) error {
	f := &frame{b: message}
	for len(f.b) > 0 && f.err == nil {
		if in.behind() {
			return errBehind
		}
		switch tag := f.tag(); tag {
		case itRequest:
			c := in.newCall()
			c.id, c.number = f.number(), f.number()
			before := f.b
			read(f, nonce.ReadRequest, &c.req)
			if f.err != nil {
				return f.err
			}
			c.sum = xxhash.Sum64(before[:len(before)-len(f.b)])
			c.begin()
		case itInterest:
			if i := f.interest(); f.err == nil {
				in.listen(i)
			}
		default:
			return nonsense("an item %q", tag)
		}
	}
	return f.err
}

// listen makes the hub deliver what the node wants from now on: its one subscription changes at
// once, so that nothing is told twice or left out.
func (in *inbound) listen(want *interest) {
	switch {
	case in.sub != nil && want.empty():
		in.sub.Close()
		in.sub = nil
	case in.sub != nil:
		in.sub.Change(want.Signers)
	case !want.empty():
		in.sub = in.r.local.Hub.Watch(in, want.Signers)
	}
	in.push(reply{have: want.seq})
	in.Wake()
}

// Take implements events.Subscriber. It does not block: what finds too much waiting is counted as missed.
func (in *inbound) Take(e *events.Event, missed int64) bool {
	in.mu.Lock()
	full := in.events >= maxEvents || in.ended
	if !full {
		in.events++
		in.out = append(in.out, reply{event: e.Event, missed: missed})
	}
	in.mu.Unlock()
	if !full {
		in.Wake()
	}
	return !full
}

// push puts something behind what is to be sent. false: the link has ended.
func (in *inbound) push(o reply) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.ended {
		in.out = append(in.out, o)
	}
	return !in.ended
}

// Wake implements nonce.Waker: the writer looks.
func (in *inbound) Wake() { poke(in.more) }

// fill implements end: what waits, as far as it fits into one message.
func (in *inbound) fill(b []byte) []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for ; n < len(in.out) && len(b) < fullFrame; n++ {
		switch o := in.out[n]; {
		case o.call != nil:
			b = binary.AppendUvarint(append(b, itResult), o.call.id)
			b = nonce.AppendResult(binary.BigEndian.AppendUint64(b, o.call.sum), &o.call.res)
			in.writing = append(in.writing, o.call)
		case o.event != nil:
			in.events--
			b = nonce.AppendEvent(binary.AppendUvarint(append(b, itEvent), uint64(o.missed)), o.event)
		default:
			b = binary.AppendUvarint(append(b, itHave), o.have)
		}
	}
	in.out = slices.Delete(in.out, 0, n)
	return b
}

// wrote implements end: only what was written makes room for further requests.
func (in *inbound) wrote() {
	for i, c := range in.writing {
		c.release()
		in.writing[i] = nil
	}
	in.writing = in.writing[:0]
}

// look implements end.
func (in *inbound) look(now time.Time) error {
	in.paths.forget(now)
	if in.behind() {
		return errBehind
	}
	return nil
}

// behind reports whether more waits to be sent than may.
func (in *inbound) behind() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.out)-in.events > maxBehind*in.r.cfg.Queue
}
