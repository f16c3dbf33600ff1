package route

import (
	"math"
	"strings"
	"time"

	"noncegate/nonce"
	"noncegate/wire"
)

// asked is what an answer is held against: one that belongs to another request must
// never reach a client.
type asked struct {
	kind   nonce.Kind
	signer string
	count  int
	nonce  int64
}

// answer is an answer that was understood.
type answer struct {
	verdict nonce.Verdict
	err     error

	nonces, attempts []int64
	token            int64
	heldUntil        time.Time
	holdLeft         time.Duration
	status           nonce.Status
	floor, next      int64
}

// fill writes the result part of op.
func (a *answer) fill(op *nonce.Op) {
	op.Err = a.err
	if a.err != nil {
		return
	}
	switch op.Kind {
	case nonce.KindAllocate:
		op.Nonces, op.Attempts, op.Token = a.nonces, a.attempts, a.token
		op.HeldUntil, op.HoldLeft = a.heldUntil, a.holdLeft
	case nonce.KindMarkUsed, nonce.KindMarkRecyclable:
		op.Status = a.status
	default:
		op.Floor, op.Next = a.floor, a.next
	}
}

// results is the memory for what results are decoded into.
type results struct {
	allocate wire.AllocateResult
	mark     wire.MarkResult
	floor    wire.FloorResult
}

// understand reads the answer to what was asked. An error is errNonsense.
func (r *results) understand(q asked, f *frame) (answer, error) {
	if f.Error != nil {
		return refused(q, f.Error)
	}
	switch q.kind {
	case nonce.KindAllocate:
		return r.allocated(q, f.Result)
	case nonce.KindMarkUsed, nonce.KindMarkRecyclable:
		return r.marked(q, f.Result)
	default:
		return r.floored(q, f.Result)
	}
}

// allocated reads the result of an allocate. holdMs is passed on as the owner said
// it: it is what was left at the commit, and the client counts it from when it sent
// its request, which was before this node sent it on.
func (r *results) allocated(q asked, result []byte) (answer, error) {
	r.allocate = wire.AllocateResult{Nonces: r.allocate.Nonces[:0]}
	got := &r.allocate
	if err := wire.Unmarshal(result, got); err != nil {
		return answer{}, nonsense("%w", err)
	}
	if q.count == 1 && len(got.Nonces) == 0 {
		got.Nonces = append(got.Nonces, wire.NonceAttempt{Nonce: got.Nonce, Attempt: got.Attempt})
	}
	const mostMs = int64(math.MaxInt64 / time.Millisecond)
	if got.Signer != q.signer || len(got.Nonces) != q.count || got.Nonces[0].Nonce != got.Nonce ||
		time.Time(got.HeldUntil).IsZero() || got.HoldMs < 0 || got.HoldMs > mostMs {
		return answer{}, nonsense("an allocation of %d for %.140q that does not fit the request", len(got.Nonces), got.Signer)
	}
	both := make([]int64, 2*q.count)
	a := answer{
		nonces: both[:q.count:q.count], attempts: both[q.count:], token: got.FencingToken,
		heldUntil: time.Time(got.HeldUntil), holdLeft: time.Duration(got.HoldMs) * time.Millisecond,
	}
	before := int64(-1)
	for i, n := range got.Nonces {
		if n.Nonce <= before || n.Attempt < 1 {
			return answer{}, nonsense("an allocation of nonce %d, attempt %d, after nonce %d", n.Nonce, n.Attempt, before)
		}
		a.nonces[i], a.attempts[i], before = n.Nonce, n.Attempt, n.Nonce
	}
	return a, nil
}

func (r *results) marked(q asked, result []byte) (answer, error) {
	r.mark = wire.MarkResult{}
	if err := wire.Unmarshal(result, &r.mark); err != nil {
		return answer{}, nonsense("%w", err)
	}
	a := answer{status: statusOf(r.mark.Status)}
	if r.mark.Signer != q.signer || r.mark.Nonce != q.nonce || a.status == 0 {
		return a, nonsense("a mark of nonce %d of %.140q, which was not asked for", r.mark.Nonce, r.mark.Signer)
	}
	return a, nil
}

func (r *results) floored(q asked, result []byte) (answer, error) {
	r.floor = wire.FloorResult{}
	if err := wire.Unmarshal(result, &r.floor); err != nil {
		return answer{}, nonsense("%w", err)
	}
	if r.floor.Signer != q.signer {
		return answer{}, nonsense("the floor of %.140q, which was not asked for", r.floor.Signer)
	}
	return answer{floor: r.floor.Floor, next: r.floor.Next}, nil
}

// statusOf reads a status; 0: it is none.
func statusOf(word string) nonce.Status {
	for _, s := range []nonce.Status{nonce.Held, nonce.Released, nonce.Consumed} {
		if s.String() == word {
			return s
		}
	}
	return 0
}

// mostErrorBytes bounds an error of another node that is passed on as it is. It is
// below the place that a reply has in the client's queue.
const mostErrorBytes = 900

// refused reads an error. It is the counterpart of the table of errors in ws.
func refused(q asked, e *wire.Error) (answer, error) {
	if e.Data == nil {
		return answer{}, nonsense("an error without a reason: %.200q", e.Message)
	}
	switch e.Code {
	case wire.CodeNotOwner:
		return bounced(&nonce.NotOwnerError{Node: e.Data.OwnerNode, URL: e.Data.OwnerURL})
	case wire.CodeFenced:
		return bounced(nonce.ErrFenced)
	case wire.CodeDraining:
		return bounced(nonce.ErrDraining)
	case wire.CodeForbidden: // a node is forbidden nothing but this
		return answer{err: nonce.ErrNotHolder}, nil
	case wire.CodeNotFound:
		return answer{err: nonce.ErrNotFound}, nil
	case wire.CodeHoldLimit:
		return answer{err: &nonce.HoldLimitError{Limit: int(e.Data.Limit), OfPrincipal: e.Data.Signer == ""}}, nil
	case wire.CodeUnavailable:
		return answer{err: unavailable(e)}, nil
	case wire.CodeConflict:
		return conflict(q, e)
	}
	written, err := wire.Marshal(e)
	if err != nil || len(written) > mostErrorBytes {
		return answer{}, nonsense("an error of %d bytes", len(written))
	}
	return answer{err: e}, nil
}

func bounced(err error) (answer, error) { return answer{verdict: nonce.Bounced, err: err}, nil }

// unavailable reads the error of that name. What does not say that nothing happened
// is unknown.
func unavailable(e *wire.Error) error {
	outcome := nonce.Unknown
	if e.Data.Outcome == wire.OutcomeNone {
		outcome = nonce.NotSent
	}
	return &nonce.UnavailableError{Outcome: outcome, Err: e}
}

func conflict(q asked, e *wire.Error) (answer, error) {
	d := e.Data
	c := &nonce.ConflictError{
		Sentence: strings.TrimPrefix(e.Message, d.Reason+": "),
		Nonce:    -1, Status: statusOf(d.Status), Attempt: d.Attempt,
	}
	if d.Nonce != nil {
		c.Nonce = *d.Nonce
	}
	if d.HeldUntil != nil {
		c.HeldUntil = time.Time(*d.HeldUntil)
	}
	if d.TxHash != "" {
		hash, err := nonce.ParseTxHash(d.TxHash)
		if err != nil {
			return answer{}, nonsense("a conflict with the hash %.70q", d.TxHash)
		}
		c.TxHash = hash
	}
	if len(d.Nonces) > max(q.count, 1) || d.Nonce != nil && c.Status == 0 {
		return answer{}, nonsense("a conflict that does not fit the request")
	}
	for _, h := range d.Nonces {
		state := nonce.HoldState{Nonce: h.Nonce, Attempt: h.Attempt, Status: statusOf(h.Status)}
		if state.Status == 0 {
			return answer{}, nonsense("a hold in the state %.40q", h.Status)
		}
		c.Holds = append(c.Holds, state)
	}
	return answer{err: c}, nil
}
