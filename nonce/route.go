package nonce

import (
	"errors"
	"sync/atomic"
)

// Verdict says what became of a request that was forwarded.
type Verdict uint8

// The verdicts.
const (
	// Answered: the other node has answered; the Result, Err included, is its answer.
	Answered Verdict = iota + 1
	// Bounced: the other node did not do it, or never got it, and says in Result.Err
	// why: *NotOwnerError, ErrFenced, ErrDraining or ErrPeerAway. It is routed again.
	Bounced
	// Doubtful: it was sent and not answered, so it may have happened. It is
	// asked again, unless a repeat could hand out once more; only an answer settles it.
	Doubtful
	// Expired: as Doubtful, but the time for it is over.
	Expired
)

// Forwarded is a request that a router took over, as its caller knows it.
type Forwarded interface {
	// Gone reports that the caller does not wait for the answer any more. What is not sent yet then comes
	// back as Bounced, with ErrGone.
	Gone() bool
	// Return is called once, when the request's time with the router is over. r is not kept. It
	// must not block. The Waker, which may be nil, is for the caller to wake, after others that
	// it returns at the same time.
	Return(r *Result, v Verdict) Waker
}

// Errors of forwarding. All mean that nothing was sent.
var (
	// ErrPeerAway: the other node cannot be reached.
	ErrPeerAway = errors.New("the node that serves the signer is not reached from here")
	// ErrOtherVersion: its links have another version, so its clients must go there themselves.
	ErrOtherVersion = errors.New("the node that serves the signer speaks another version of links")
	// ErrForwardBusy: as many requests wait for the other node as may.
	ErrForwardBusy = errors.New("too many requests wait for the node that owns the signer")
)

// Path is the way of one signer's requests from one other node, those with one
// path number there. When one of them is not done here but sent back, those behind
// it are sent back too, so that they cannot overtake it: also those that the other
// node had sent before it knew. It begins anew only when all have come back, under
// another number. A node that takes requests from another one makes a Path for each number, and
// forgets a broken one only when nothing of it can be on its way any more.
type Path struct {
	back atomic.Pointer[error] // why an op was sent back
}

// Broken reports whether an op was sent back.
func (p *Path) Broken() bool { return p.back.Load() != nil }

// Reason is why an op was sent back; nil: none was.
func (p *Path) Reason() error {
	if why := p.back.Load(); why != nil {
		return *why
	}
	return nil
}

// Break says that an op of the path was sent back, and why. The service does so for
// its own refusals. The first reason stays.
func (p *Path) Break(why error) { p.back.CompareAndSwap(nil, &why) }
