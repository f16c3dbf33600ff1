package service

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// task is what the service needs to run an op, which its submitter reads when it has
// ended.
type task struct {
	op       *nonce.Op
	queuedAt time.Time
	where    whereabouts
	outcome  outcome
	placed   bool  // it holds a slot of its worker's queue
	taken    *bool // with caller-runs: set once it was taken from the queue, under its worker's batchMu

	stream *remoteSigner // while it is forwarded
	order  int           // among the tasks of its stream
	hops   int           // how often it was sent to another node, or had to be routed again
}

// whereabouts is where a task is.
type whereabouts uint8

const (
	queued    whereabouts = iota // in its worker's queue
	inBatch                      // the worker runs it
	waiting                      // for a lock, or for what is under way at another node
	forwarded                    // at another node
	ended
)

// String names the whereabouts.
func (w whereabouts) String() string {
	return [...]string{"queued", "in a batch", "waiting", "forwarded", "ended"}[w]
}

// ways are the allowed moves: from each state to which others.
var ways = [...][]whereabouts{
	queued:    {inBatch, waiting, ended},
	inBatch:   {waiting, forwarded, ended},
	waiting:   {inBatch, ended},
	forwarded: {inBatch, ended},
	ended:     nil,
}

// move takes the task to another state.
func (t *task) move(to whereabouts) {
	if !slices.Contains(ways[t.where], to) && (t.where != to || to == ended) {
		panic(fmt.Sprintf("nonce/service: a %s op that is %s is made %s", t.op.Kind, t.where, to))
	}
	t.where = to
}

// outcome is what became of an op, as far as is known.
type outcome uint8

const (
	pending   outcome = iota // nothing of it was done that anybody must be told of
	uncertain                // another node, or a commit that was not answered, may have done it; it is looked into
	committed                // it happened, or it was answered from what had
	refused                  // nothing of it happened
	unknown                  // nobody knows; its caller is told so
)

// become gives the task its outcome. Those from committed on are final.
func (t *task) become(to outcome) {
	if t.over() {
		panic(fmt.Sprintf("nonce/service: a %s op has two outcomes", t.op.Kind))
	}
	t.outcome = to
}

// end gives the task its final outcome.
func (t *task) end(err error) {
	to := refused
	if away, is := errors.AsType[*nonce.UnavailableError](err); err == nil {
		to = committed
	} else if is && away.Outcome == nonce.Unknown {
		to = unknown
	}
	t.become(to)
	t.op.Err = err
}

// refuse ends the task without a result. An op that another node, or a commit before, may
// have done, and whose answer could not be had, is unknown to its caller, and not refused.
// Only the conflict of an allocate tells the truth about it: a mark that is repeated meets
// what it did itself, and what came after. What is OnlyKnown does nothing anywhere.
func (t *task) refuse(err error) {
	clearResult(t.op)
	_, conflict := errors.AsType[*nonce.ConflictError](err)
	if t.outcome == uncertain && !t.op.OnlyKnown && !(conflict && t.op.Kind == nonce.KindAllocate) {
		err = &nonce.UnavailableError{Outcome: nonce.Unknown, Err: fmt.Errorf("%w, and then: %v", errDoubt, err)}
	}
	t.end(err)
}

const errOver nonce.Told = "the hold was over before it could be answered; ask again with the same request id"

// answer ends the task with what the rules made of it. A hold that may be over by now is
// told as unknown: somebody else may have the nonce.
func (t *task) answer(a *rules.Answer, now nonce.Clock) {
	clearResult(t.op)
	switch {
	case a.Err != nil:
		t.refuse(a.Err)
		return
	case a.Until != 0 && a.Until <= now.Latest:
		t.refuse(&nonce.UnavailableError{Outcome: nonce.Unknown, Err: errOver})
		return
	}
	op := t.op
	op.Nonces, op.Attempts, op.Token, op.HoldLeft = a.Nonces, a.Attempts, a.Token, a.Left
	if a.Until != 0 {
		op.HeldUntil = time.UnixMilli(a.Until)
		// Whoever counts HoldLeft by a clock of its own is to end with the store's: that may have
		// gone further than this node's, on a machine that was suspended.
		if left := time.Duration(a.Until-now.Latest) * time.Millisecond; left < op.HoldLeft-clockTolerance {
			op.HoldLeft = left
		}
	}
	op.Status, op.Hashes, op.Replaced, op.Before, op.Earlier, op.Next, op.Summary = a.Status, a.Hashes, a.Replaced, a.Before, a.Earlier, a.Next, nonce.Summary{}
	if a.Summary != nil {
		op.Summary = *a.Summary
	}
	op.Result.Attempt, op.Result.Floor = cmp.Or(a.Attempt, op.Request.Attempt), a.Floor
	t.end(nil)
}

// clearResult empties the result part of an op.
func clearResult(op *nonce.Op) { op.Result = nonce.Result{} }

// tell tells the submitter that the op has ended. The task is over.
func (t *task) tell() nonce.Waker {
	t.move(ended)
	t.op.Task = nil
	if t.op.Completion == nil {
		return nil
	}
	return t.op.Completion.Done(t.op)
}

// over reports whether the task has its final outcome.
func (t *task) over() bool { return t.outcome >= committed }

// gone reports whether nobody waits for the op any more.
func (t *task) gone() bool { return t.op.Completion != nil && t.op.Completion.Gone() }

// local reports whether the op is a client's of this node, which may be sent to another;
// those of other nodes may not.
func (t *task) local() bool { return t.op.Path == nil }

// reads reports whether the op changes nothing.
func (t *task) reads() bool {
	return t.op.Kind == nonce.KindStatus || t.op.Kind == nonce.KindList
}
