package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/nonce"
	"noncegate/wire"
)

// errNonsense says that the other node sent what cannot be understood. It might
// have been somebody's answer, so the link ends, and what is under way is
// doubtful.
var errNonsense = errors.New("the node sent what cannot be understood")

func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errNonsense}, args...)...)
}

// input is the reader's memory.
type input struct {
	message bytes.Buffer
	frame   frame
	results results
	wakers  wakers
}

// frame is anything that a node sends.
type frame struct {
	ID     wire.Raw    `json:"id"`
	Method string      `json:"method"`
	Params wire.Raw    `json:"params"`
	Result wire.Raw    `json:"result"`
	Error  *wire.Error `json:"error"`
}

// read is the link's reader. It returns why it ended, never nil.
func (l *link) read() error {
	for {
		kind, r, err := l.ws.NextReader()
		if err != nil {
			return err
		}
		if kind != websocket.TextMessage {
			return nonsense("a binary message")
		}
		l.in.message.Reset()
		if _, err := l.in.message.ReadFrom(r); err != nil {
			return err
		}
		if err := l.receive(l.in.message.Bytes()); err != nil {
			return err
		}
	}
}

func (l *link) receive(data []byte) error {
	f := &l.in.frame
	*f = frame{ID: f.ID[:0], Params: f.Params[:0], Result: f.Result[:0]}
	if err := wire.Unmarshal(data, f); err != nil {
		return nonsense("%w", err)
	}
	if f.Method != "" {
		if f.Method == wire.MethodSubscription {
			return l.event(f.Params)
		}
		return nil // of a later version
	}
	id, err := strconv.ParseUint(string(f.ID), 10, 64)
	switch {
	case err != nil && f.Error != nil:
		return nonsense("it could not read a request: %v", f.Error)
	case err != nil:
		return nonsense("an answer with the id %.40q", f.ID)
	case f.Error == nil && len(f.Result) == 0:
		return nonsense("an answer that says nothing")
	case id&controlBit != 0:
		return l.controlAnswered(id, f)
	}
	return l.answered(id, f)
}

// answered gives an op back with its answer. Until that is understood the op stays
// where it is, so that it comes back in its order if it is not.
func (l *link) answered(id uint64, f *frame) error {
	p := l.peer
	p.mu.Lock()
	s := p.inflight.find(id)
	if s == nil { // too late: it was given back as expired
		p.mu.Unlock()
		return nil
	}
	if s.stage != sent {
		p.mu.Unlock()
		return nonsense("an answer to a request that was not sent")
	}
	q := askedBy(s.op)
	p.mu.Unlock()

	a, err := l.in.results.understand(q, f)
	if err != nil {
		return err
	}
	p.mu.Lock()
	if s = p.inflight.find(id); s == nil { // it expired meanwhile
		p.mu.Unlock()
		return nil
	}
	b := returned{op: s.op, at: s.at, verdict: nonce.Answered}
	if a.bounced {
		b.verdict = nonce.Bounced
	}
	p.inflight.remove(s)
	p.mu.Unlock()
	if a.err == nonce.ErrDraining {
		p.markDraining(l)
	}
	a.fill(b.op)
	p.r.returnOp(b, time.Now(), &l.in.wakers)
	return nil
}

// expire gives back what is too old.
func (p *peer) expire(now time.Time) {
	var back []returned
	p.mu.Lock()
	for s := p.inflight.first(); s != nil && s.stage != writing && now.Sub(s.at) >= p.r.cfg.Timeout; s = p.inflight.first() {
		b := returned{op: s.op, at: s.at, verdict: nonce.Expired}
		b.op.Err = errTooLate
		if s.stage == queued {
			b.verdict, b.op.Err = nonce.Bounced, nonce.ErrPeerAway
		}
		back = append(back, b)
		p.inflight.remove(s)
	}
	p.mu.Unlock()
	p.r.returnAll(back)
}

var errTooLate = errors.New("the node that owns the signer did not answer in time")
