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

// task is a request on its way through the service. The request and the memory for its result
// are the submitter's, who does not touch them before done is told.
type task struct {
	req      *nonce.Request
	res      *nonce.Result
	shard    *shard // nil: it has not come to a worker
	done     nonce.Completion
	path     *nonce.Path // what came from another node and changes something has one
	queuedAt time.Time
	where    whereabouts
	outcome  outcome
	placed   bool  // it holds a slot of its worker's queue
	events   bool  // and one of the sink, for its events
	taken    *bool // with caller-runs: set once it was taken from the queue, under its worker's batchMu

	stream *remoteSigner // while it is forwarded
	order  int           // among the tasks of its stream
	hops   int           // how often it was sent to another node, or had to be routed again
}

// whereabouts is where a task is.
type whereabouts uint8

const (
	submitted whereabouts = iota // on its way to its worker
	queued                       // in its worker's queue
	inBatch                      // the worker runs it
	waiting                      // for a lock, or for what is under way at another node
	forwarded                    // at another node
	ended
)

// String names the whereabouts.
func (w whereabouts) String() string {
	return [...]string{"submitted", "queued", "in a batch", "waiting", "forwarded", "ended"}[w]
}

// atWorker is 1 for a task that its worker has, 0 for others.
func (w whereabouts) atWorker() int {
	if w >= queued && w <= waiting {
		return 1
	}
	return 0
}

// ways are the allowed moves: from each state to which others.
var ways = [...][]whereabouts{
	submitted: {queued, inBatch, forwarded, ended}, // in mode basic no worker has it
	queued:    {inBatch, waiting, ended},
	inBatch:   {waiting, forwarded, ended},
	waiting:   {inBatch, ended},
	forwarded: {submitted, inBatch, ended},
	ended:     nil,
}

// move takes the task to another state.
func (t *task) move(to whereabouts) {
	if !slices.Contains(ways[t.where], to) && (t.where != to || to == ended) {
		panic(fmt.Sprintf("nonce/service: a %s op that is %s is made %s", t.req.Kind, t.where, to))
	}
	if was, is := t.where.atWorker(), to.atWorker(); was != is && t.shard != nil {
		t.shard.inside.Add(int64(is - was))
	}
	t.where = to
}

// outcome is what became of a request, as far as is known.
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
		panic(fmt.Sprintf("nonce/service: a %s op has two outcomes", t.req.Kind))
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
	t.res.Err = err
}

// refuse ends the task without a result. An op that another node, or a commit before, may
// have done, and whose answer could not be had, is unknown to its caller, and not refused.
// Only the conflict of an allocate tells the truth about it: a mark that is repeated meets
// what it did itself, and what came after. What is OnlyKnown does nothing anywhere.
func (t *task) refuse(err error) {
	*t.res = nonce.Result{}
	_, conflict := errors.AsType[*nonce.ConflictError](err)
	if t.outcome == uncertain && !t.req.OnlyKnown && !(conflict && t.req.Kind == nonce.KindAllocate) {
		err = &nonce.UnavailableError{Outcome: nonce.Unknown, Err: fmt.Errorf("%w, and then: %v", errDoubt, err)}
	}
	t.end(err)
}

const errOver nonce.Told = "the hold was over before it could be answered; ask again with the same request id"

// answer ends the task with what the rules made of it. A hold that may be over by now is
// told as unknown: somebody else may have the nonce.
func (t *task) answer(a *rules.Answer, now nonce.Clock) {
	switch {
	case a.Err != nil:
		t.refuse(a.Err)
		return
	case a.Until != 0 && a.Until <= now.Latest:
		t.refuse(&nonce.UnavailableError{Outcome: nonce.Unknown, Err: errOver})
		return
	}
	res := t.res
	*res = nonce.Result{
		Nonces: a.Nonces, Attempts: a.Attempts, Token: a.Token, HoldLeft: a.Left, Status: a.Status, Attempt: cmp.Or(a.Attempt, t.req.Attempt),
		Hashes: a.Hashes, Replaced: a.Replaced, Before: a.Before, Earlier: a.Earlier, Floor: a.Floor, Next: a.Next,
	}
	if a.Until != 0 {
		res.HeldUntil = time.UnixMilli(a.Until)
		// Whoever counts HoldLeft by a clock of its own is to end with the store's: that may have
		// gone further than this node's, on a machine that was suspended.
		if left := time.Duration(a.Until-now.Latest) * time.Millisecond; left < res.HoldLeft-clockTolerance {
			res.HoldLeft = left
		}
	}
	if a.Summary != nil {
		res.Summary = *a.Summary
	}
	t.end(nil)
}

// tell tells the submitter that its request has ended. The task is over.
func (s *Service) tell(t *task) nonce.Waker {
	t.move(ended)
	s.dropEvents(t)
	return t.done.Done(t.res)
}

// dropEvents gives back the task's slot of the sink, if no events went with it.
func (s *Service) dropEvents(t *task) {
	if t.events {
		t.events = false
		s.sink.Unreserve(s.WorkerIndex(t.req.Signer))
	}
}

func (t *task) principal() nonce.Principal { return t.req.Principal }

// over reports whether the task has its final outcome.
func (t *task) over() bool { return t.outcome >= committed }

// gone reports whether nobody waits for the request any more.
func (t *task) gone() bool { return t.done.Gone() }

// local reports whether the request is a client's of this node, which may be sent to another;
// those of other nodes may not.
func (t *task) local() bool { return t.path == nil }

// reads reports whether the request changes nothing.
func (t *task) reads() bool {
	return t.req.Kind.Reads()
}
