package cluster

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
	kind    nonce.Kind
	signer  string
	count   int
	nonce   int64 // of a repair: -1 for any
	attempt int64 // of marks; 0: any
	keep    bool  // of a markRecyclable: the hold may go on
	hash    nonce.TxHash
}

func askedBy(op *op) asked {
	return asked{kind: op.Kind, signer: op.Signer, count: op.Count, nonce: op.Nonce, attempt: op.Request.Attempt, keep: op.Keep, hash: op.TxHash}
}

// answer is an answer that was understood.
type answer struct {
	bounced bool // that node did not do it
	err     error

	nonces, attempts []int64
	token            int64
	heldUntil        time.Time
	holdLeft         time.Duration
	status           nonce.Status
	attempt          int64 // of a mark
	hashes           nonce.TxHashes
	replaced         nonce.TxHash
	before           *nonce.Before
	earlier          []*nonce.Earlier
	offer            *nonce.Offer
	floor, next      int64
	said             *nonce.ChainSaid // of a read
}

// fill writes the result part of op.
func (a *answer) fill(op *op) {
	op.Err = a.err
	if a.err != nil {
		return
	}
	switch op.Kind {
	case nonce.KindAllocate:
		op.Nonces, op.Attempts, op.Token = a.nonces, a.attempts, a.token
		op.HeldUntil, op.HoldLeft, op.Earlier = a.heldUntil, a.holdLeft, a.earlier
	case nonce.KindRepair:
		op.Nonces, op.Attempts, op.Token = a.nonces, a.attempts, a.token
		op.HeldUntil, op.HoldLeft, op.Before, op.Earlier = a.heldUntil, a.holdLeft, a.before, a.earlier
		op.Status, op.Hashes, op.Offer = nonce.Held, a.hashes, a.offer
	case nonce.KindExtend:
		op.Token, op.HeldUntil, op.HoldLeft, op.Status, op.Result.Attempt = a.token, a.heldUntil, a.holdLeft, nonce.Held, op.Request.Attempt
	case nonce.KindMarkUsed, nonce.KindMarkRecyclable, nonce.KindMarkSigned:
		op.Status, op.Result.Attempt, op.Hashes, op.Replaced = a.status, a.attempt, a.hashes, a.replaced
		op.HeldUntil, op.HoldLeft, op.Earlier = a.heldUntil, a.holdLeft, a.earlier
	case nonce.KindSetFloor:
		op.Result.Floor, op.Next = a.floor, a.next
	case nonce.KindStatus, nonce.KindList:
		op.Said = a.said
	}
}

// results is the memory for what results are decoded into.
type results struct {
	allocate wire.AllocateResult
	mark     wire.MarkResult
	extend   wire.ExtendResult
	repair   wire.RepairResult
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
	case nonce.KindMarkUsed, nonce.KindMarkRecyclable, nonce.KindMarkSigned:
		return r.marked(q, f.Result)
	case nonce.KindExtend:
		return r.extended(q, f.Result)
	case nonce.KindRepair:
		return r.repaired(q, f.Result)
	case nonce.KindSetFloor:
		return r.floored(q, f.Result)
	case nonce.KindStatus:
		return statusSaid(q, f.Result)
	case nonce.KindList:
		return listSaid(f.Result)
	}
	return answer{}, errNonsense // nothing else was asked
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
		got.Nonces = append(got.Nonces, wire.NonceAttempt{Nonce: got.Nonce, Attempt: got.Attempt, Reissued: got.Reissued})
	}
	if got.Signer != q.signer || len(got.Nonces) != q.count || got.Nonces[0].Nonce != got.Nonce || !holds(got.HeldUntil, got.HoldMs) {
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
		if err := a.follows(i, q.count, n.Attempt, n.Reissued); err != nil {
			return answer{}, err
		}
	}
	return a, nil
}

// follows takes over what the i-th nonce of so many was before, if anything is said of it.
func (a *answer) follows(i, of int, attempt int64, w *wire.Reissued) error {
	if w == nil {
		return nil
	}
	was := &nonce.Earlier{Attempt: w.Attempt, Reason: w.Reason}
	var err error
	if w.TxHash != "" {
		was.TxHash, err = nonce.ParseTxHash(w.TxHash)
	}
	if err != nil || w.Attempt < 1 || w.Attempt >= attempt || w.Reason != wire.ReissuedUnseen && w.Reason != wire.ReissuedRepair {
		return nonsense("attempt %d that says it follows attempt %d, %.20q, %.70q", attempt, w.Attempt, w.Reason, w.TxHash)
	}
	if a.earlier == nil {
		a.earlier = make([]*nonce.Earlier, of)
	}
	a.earlier[i] = was
	return nil
}

// holds reports whether a deadline and what was left until it can be those of a hold.
func holds(until wire.Time, leftMs int64) bool {
	const maxMs = int64(math.MaxInt64 / time.Millisecond)
	return !time.Time(until).IsZero() && leftMs >= 0 && leftMs <= maxMs
}

// sensible reports whether a reason is one that a node can have written.
func sensible(reason string) bool {
	_, err := nonce.ParseReason(reason)
	return err == nil
}

func (r *results) marked(q asked, result []byte) (answer, error) {
	r.mark = wire.MarkResult{TxHashes: r.mark.TxHashes[:0]}
	got := &r.mark
	if err := wire.Unmarshal(result, got); err != nil {
		return answer{}, nonsense("%w", err)
	}
	a := answer{attempt: got.Attempt}
	var unknown bool
	a.status, unknown = statusOf(got.Status)
	if got.Signer != q.signer || got.Nonce != q.nonce || got.Attempt < 1 || q.attempt != 0 && got.Attempt != q.attempt || unknown || !q.fits(a.status) {
		return a, nonsense("a mark of nonce %d of %.140q, attempt %d, as %.40q, which was not asked for", got.Nonce, got.Signer, got.Attempt, got.Status)
	}
	var err error
	if a.hashes, err = hashes(got.TxHash, got.TxHashes); err != nil {
		return a, err
	}
	if got.Replaced != "" {
		if a.replaced, err = nonce.ParseTxHash(got.Replaced); err != nil || !a.hashes.Contains(a.replaced) {
			return a, nonsense("a mark that replaced %.70q", got.Replaced)
		}
	}
	if q.hash != (nonce.TxHash{}) && q.kind != nonce.KindMarkRecyclable && !a.hashes.Contains(q.hash) {
		return a, nonsense("a mark with other transactions than the one that was asked for")
	}
	if q.kind == nonce.KindMarkSigned && a.status == nonce.Held {
		if got.HeldUntil == nil || !holds(*got.HeldUntil, got.HoldMs) {
			return a, nonsense("a hash recorded for a hold without a deadline")
		}
		a.heldUntil, a.holdLeft = time.Time(*got.HeldUntil), time.Duration(got.HoldMs)*time.Millisecond
	}
	return a, a.follows(0, 1, got.Attempt, got.Reissued)
}

// fits reports whether a mark can end in a state.
func (q *asked) fits(s nonce.Status) bool {
	switch q.kind {
	case nonce.KindMarkUsed:
		return s == nonce.Consumed
	case nonce.KindMarkSigned:
		return s == nonce.Held || s == nonce.Consumed
	}
	return s == nonce.Released || s == nonce.Consumed || s == nonce.Held && q.keep
}

// hashes reads the newest hash of a nonce, and all of them where there are several.
func hashes(newest string, all []string) (hs nonce.TxHashes, err error) {
	switch {
	case newest == "" && len(all) == 0:
		return "", nil
	case len(all) == 0:
		all = []string{newest}
	case len(all) > nonce.MaxHashes || newest != "" && newest != all[0]:
		return "", nonsense("%d hashes of one nonce", len(all))
	}
	for _, text := range all {
		h, err := nonce.ParseTxHash(text)
		if err != nil || hs.Contains(h) {
			return "", nonsense("the hash %.70q", text)
		}
		hs = hs.Append(h)
	}
	return hs, nil
}

func (r *results) extended(q asked, result []byte) (answer, error) {
	r.extend = wire.ExtendResult{}
	got := &r.extend
	if err := wire.Unmarshal(result, got); err != nil {
		return answer{}, nonsense("%w", err)
	}
	if got.Signer != q.signer || got.Nonce != q.nonce || got.Attempt != q.attempt || !holds(got.HeldUntil, got.HoldMs) {
		return answer{}, nonsense("a hold of nonce %d of %.140q, attempt %d, which was not to be extended", got.Nonce, got.Signer, got.Attempt)
	}
	return answer{token: got.FencingToken, heldUntil: time.Time(got.HeldUntil), holdLeft: time.Duration(got.HoldMs) * time.Millisecond}, nil
}

func (r *results) repaired(q asked, result []byte) (answer, error) {
	r.repair = wire.RepairResult{TxHashes: r.repair.TxHashes[:0]}
	got := &r.repair
	if err := wire.Unmarshal(result, got); err != nil {
		return answer{}, nonsense("%w", err)
	}
	if got.Signer != q.signer || got.Nonce < 0 || q.nonce >= 0 && got.Nonce != q.nonce || got.Attempt < 1 || !holds(got.HeldUntil, got.HoldMs) {
		return answer{}, nonsense("a repair of nonce %d of %.140q, which was not asked for", got.Nonce, got.Signer)
	}
	before, err := beforeOf(got)
	if err != nil {
		return answer{}, err
	}
	both := [2]int64{got.Nonce, got.Attempt}
	a := answer{
		nonces: both[:1:1], attempts: both[1:], token: got.FencingToken, before: before,
		heldUntil: time.Time(got.HeldUntil), holdLeft: time.Duration(got.HoldMs) * time.Millisecond,
	}
	if a.hashes, err = hashes("", got.TxHashes); err != nil {
		return a, err
	}
	if a.offer, err = offer(got.Offer); err != nil {
		return a, err
	}
	return a, a.follows(0, 1, got.Attempt, got.Reissued)
}

// beforeOf is what a repaired nonce was; nil: the answer is one that was given before.
func beforeOf(got *wire.RepairResult) (*nonce.Before, error) {
	w := got.Was
	if w == nil {
		return nil, nil
	}
	s, unknown := statusOf(w.Status)
	if s == 0 || w.Attempt < 0 || !sensible(w.Reason) || unknown != (s == nonce.Held && w.Reason == nonce.ReasonUnknown) {
		return nil, nonsense("a repair of a nonce that was %.40q with attempt %d", w.Status, w.Attempt)
	}
	if got.Attempt <= w.Attempt {
		return nil, nonsense("a repair with attempt %d, after %d", got.Attempt, w.Attempt)
	}
	return &nonce.Before{Status: s, Attempt: w.Attempt, Reason: w.Reason}, nil
}

// offer reads what a transaction pays.
func offer(o *wire.Offer) (*nonce.Offer, error) {
	if o == nil {
		return nil, nil
	}
	for _, q := range []string{o.GasPrice, o.MaxFeePerGas, o.MaxPriorityFeePerGas, o.MaxFeePerBlobGas} {
		if q != "" && !quantity(q) {
			return nil, nonsense("a transaction that pays %.70q", q)
		}
	}
	return &nonce.Offer{
		GasPrice: o.GasPrice, MaxFeePerGas: o.MaxFeePerGas, MaxPriorityFeePerGas: o.MaxPriorityFeePerGas, MaxFeePerBlobGas: o.MaxFeePerBlobGas,
	}, nil
}

// quantity reports whether a text is a number of at most 256 bits, as Ethereum nodes
// write them.
func quantity(s string) bool {
	digits, ok := strings.CutPrefix(s, "0x")
	return ok && digits != "" && len(digits) <= 64 && strings.Trim(digits, "0123456789abcdefABCDEF") == ""
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
func statusOf(word string) (s nonce.Status, unknown bool) {
	if word == wire.StatusUnknown {
		return nonce.Held, true
	}
	for _, s := range []nonce.Status{nonce.Held, nonce.Released, nonce.Consumed} {
		if s.String() == word {
			return s, false
		}
	}
	return 0, false
}
