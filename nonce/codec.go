package nonce

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// CodecVersion is the version of the binary form of requests, results and events in which nodes
// hand them to each other. It grows with every change of what is below, of the numbers of
// kinds, states, types of events, and codecErrors.
//
// Each type has one function that names its fields in their order; a form either writes them
// or reads them. Numbers are varints, texts and lists have their length in front, a hash has a
// byte in front that says whether there is one, and times are Unix milliseconds. Flags, and
// those that say which of the rarer fields follow, come first in one number. No length is
// believed beyond the bytes that came, so what is read takes memory in proportion to them.
const CodecVersion = 1

// ErrCodec is what bytes cannot be read for.
var ErrCodec = errors.New("not what a node of this version writes")

// AppendRequest appends the form of a request.
func AppendRequest(b []byte, r *Request) []byte {
	f := form{b: b}
	f.request(r)
	return f.b
}

// ReadRequest reads one request, and returns what comes behind it. Nothing of b is kept.
func ReadRequest(b []byte, r *Request) (rest []byte, err error) {
	f := form{b: b, reading: true}
	*r = Request{}
	f.request(r)
	return f.b, f.err
}

// AppendResult appends the form of a result. Texts that are longer than a node reads are cut.
func AppendResult(b []byte, r *Result) []byte {
	f := form{b: b}
	f.result(r)
	return f.b
}

// ReadResult reads one result, and returns what comes behind it. Nothing of b is kept.
func ReadResult(b []byte, r *Result) (rest []byte, err error) {
	f := form{b: b, reading: true}
	*r = Result{}
	f.result(r)
	return f.b, f.err
}

// AppendEvent appends the form of an event.
func AppendEvent(b []byte, e *Event) []byte {
	f := form{b: b}
	f.event(e)
	return f.b
}

// ReadEvent reads one event, and returns what comes behind it. Nothing of b is kept.
func ReadEvent(b []byte, e *Event) (rest []byte, err error) {
	f := form{b: b, reading: true}
	*e = Event{}
	f.event(e)
	return f.b, f.err
}

func (f *form) request(r *Request) {
	small(f, &r.Kind, 1, lastKind)
	f.flags(&r.OnlyKnown, &r.WithHolders, &r.ChainOnly, &r.RecordFirst, &r.Unsent, &r.Forwarded, &r.Keep, &r.Take, &r.MarkAny, &r.DryRun)
	f.signer(&r.Signer)
	f.text(&r.RequestID, MaxKeyBytes)
	f.text(&r.Reason, MaxReasonBytes)
	number(f, &r.Count)
	number(f, &r.Hold)
	number(f, &r.Nonce)
	number(f, &r.Attempt)
	number(f, &r.Floor)
	number(f, &r.MaxOpen)
	f.fixed((*uint64)(&r.Principal))
	f.hash(&r.TxHash)
	f.hash(&r.Over)
	if r.Kind == KindList {
		small(f, &r.List.Status, 0, Consumed)
		f.flags(&r.List.Unknown)
		number(f, &r.List.From)
		number(f, &r.List.Limit)
		if f.reading {
			r.List.Signer = r.Signer
		}
	}
	if r.Count < 0 || r.Count > MaxCount || r.Hold < 0 || r.Nonce < 0 && (r.Kind != KindRepair || r.Nonce < -1) || r.Attempt < 0 || r.Floor < 0 || r.MaxOpen < 0 ||
		r.List.From < 0 || r.List.Limit < 0 {
		f.fail("a request with a number that none has")
	}
}

func (f *form) result(r *Result) {
	failed, hold, hashes := r.Err != nil, !r.HeldUntil.IsZero() || r.HoldLeft != 0, r.Hashes != ""
	before, earlier, offer, said := r.Before != nil, r.Earlier != nil, r.Offer != nil, r.Said != nil
	read := r.Summary != Summary{} || r.Page.Rows != nil || r.Page.NextFrom != 0 || r.Holders != nil
	f.flags(&failed, &hold, &hashes, &before, &earlier, &offer, &said, &read)
	if failed {
		f.failure(&r.Err)
		return
	}
	list(f, &r.Nonces, number[int64])
	list(f, &r.Attempts, number[int64])
	number(f, &r.Token)
	number(f, &r.Attempt)
	small(f, &r.Status, 0, Consumed)
	f.hash(&r.Replaced)
	number(f, &r.Floor)
	number(f, &r.Next)
	if hold {
		f.time(&r.HeldUntil)
		number(f, &r.HoldLeft)
	}
	if hashes {
		f.hashes(&r.Hashes)
	}
	if before {
		b := made(f, &r.Before)
		small(f, &b.Status, 0, Consumed)
		number(f, &b.Attempt)
		f.text(&b.Reason, MaxReasonBytes)
	}
	if earlier {
		list(f, &r.Earlier, (*form).earlier)
	}
	if offer {
		o := made(f, &r.Offer)
		for _, text := range []*string{&o.GasPrice, &o.MaxFeePerGas, &o.MaxPriorityFeePerGas, &o.MaxFeePerBlobGas} {
			f.text(text, MaxKeyBytes)
		}
	}
	if said {
		f.said(made(f, &r.Said))
	}
	if read {
		f.summary(&r.Summary)
		list(f, &r.Page.Rows, (*form).row)
		number(f, &r.Page.NextFrom)
		f.holders(&r.Holders)
	}
}

func (f *form) summary(s *Summary) {
	f.flags(&s.Exists, &s.Performance)
	for _, n := range []*int64{
		&s.Next, &s.Floor, &s.Version, &s.Held, &s.Released, &s.Consumed, &s.LowestHeld, &s.Overdue, &s.Unknown,
		&s.Lease.Holder.Incarnation, &s.Lease.Token,
	} {
		number(f, n)
	}
	f.text(&s.Lease.Holder.Node, maxCodecText)
	f.text(&s.Lease.URL, maxCodecText)
	f.time(&s.Lease.ExpiresAt)
	f.time(&s.Now)
}

func (f *form) row(r *Row) {
	small(f, &r.Status, Held, Consumed)
	number(f, &r.Nonce)
	number(f, &r.Attempt)
	number(f, &r.Token)
	f.hash(&r.TxHash)
	f.hashes(&r.Replaced)
	f.text(&r.Reason, MaxReasonBytes)
	f.earlier(&r.Earlier)
	f.time(&r.HeldUntil)
	f.fixed((*uint64)(&r.Holder))
	f.text(&r.RequestID, MaxKeyBytes)
	f.time(&r.UpdatedAt)
}

type holder struct {
	p    Principal
	name string
}

func (f *form) holders(names *map[Principal]string) {
	var all []holder
	for p, name := range *names {
		all = append(all, holder{p, name})
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Compare(a.p, b.p) })
	list(f, &all, func(f *form, h *holder) {
		f.fixed((*uint64)(&h.p))
		f.text(&h.name, maxCodecText)
	})
	if f.reading && len(all) > 0 {
		*names = make(map[Principal]string, len(all))
		for _, h := range all {
			(*names)[h.p] = h.name
		}
	}
}

func (f *form) earlier(e **Earlier) {
	there := *e != nil
	if f.flags(&there); there {
		was := made(f, e)
		number(f, &was.Attempt)
		f.text(&was.Reason, MaxReasonBytes)
		f.hash(&was.TxHash)
	}
}

func (f *form) said(s *ChainSaid) {
	state := s.State != nil
	f.flags(&s.Partial, &state)
	list(f, &s.Words, func(f *form, w *ChainWord) {
		number(f, &w.Nonce)
		number(f, &w.Attempt)
		f.text(&w.Word, MaxKeyBytes)
	})
	if !state {
		return
	}
	st := made(f, &s.State)
	trouble := st.Trouble != nil
	f.flags(&st.FinalKnown, &st.Stopped, &trouble)
	for _, n := range []*int64{&st.Head, &st.Mined, &st.Final, &st.Claimed, &st.Window} {
		number(f, n)
	}
	if trouble {
		f.gap(made(f, &st.Trouble))
	}
}

func (f *form) gap(g *Gap) {
	small(f, &g.Kind, WatchGap, WatchStuck)
	small(f, &g.Status, 0, Consumed)
	f.flags(&g.Unknown)
	number(f, &g.Nonce)
	f.time(&g.Since)
	number(f, &g.Attempt)
	f.hash(&g.TxHash)
	number(f, &g.Blocked)
	if g.Nonce < 0 {
		f.fail("a gap at nonce %d", g.Nonce)
	}
}

func (f *form) event(e *Event) {
	small(f, &e.Type, EventAllocated, EventType(len(eventWords)-1))
	f.signer(&e.Signer)
	number(f, &e.Nonce)
	number(f, &e.Attempt)
	f.hash(&e.TxHash)
	f.text(&e.Reason, MaxReasonBytes)
	number(f, &e.Version)
	f.time(&e.At)
	gap := e.Gap != nil
	if f.flags(&gap); gap {
		f.gap(made(f, &e.Gap))
	}
}

// The numbers of errors that have data. Those above are of codecErrors.
const (
	codecNotOwner uint8 = iota
	codecUnavailable
	codecConflict
	codecHoldLimit
	codecInvalid
	codecPlain
)

// codecErrors are the errors without data, in the order of their numbers.
var codecErrors = []error{
	ErrBusy, ErrFenced, ErrNotFound, ErrNotHolder, ErrDraining, ErrGone, ErrNoChain, ErrNewSigner, ErrInternal, ErrForwardBusy,
	ErrEventsBusy, ErrPeerAway,
}

// errStrange is for an error that is none of this package.
const errStrange Told = "the node that owns the signer met an error that it does not know; ask again with the same request id"

// failure is one of the errors of this package. After another one it is unknown what happened.
func (f *form) failure(to *error) {
	err := *to
	if f.reading {
		err = f.emptyError()
	} else {
		err = f.numbered(err)
	}
	switch e := err.(type) {
	case *NotOwnerError:
		f.text(&e.Node, maxCodecText)
		f.text(&e.URL, maxCodecText)
	case *UnavailableError:
		f.unavailable(e)
	case *ConflictError:
		f.conflict(e)
	case *HoldLimitError:
		f.flags(&e.OfPrincipal, &e.Window)
		number(f, &e.Limit)
		number(f, &e.Lowest)
		if e.Window && e.Lowest < 0 {
			f.fail("a window that begins at nonce %d", e.Lowest)
		}
	case *InvalidError:
		f.text(&e.Field, MaxKeyBytes)
		f.text(&e.Rule, maxCodecText)
	}
	if f.reading {
		*to = err
	}
}

// emptyError reads which error follows.
func (f *form) emptyError() error {
	var n uint8
	small(f, &n, 0, codecPlain+uint8(len(codecErrors))-1)
	switch n {
	case codecNotOwner:
		return new(NotOwnerError)
	case codecUnavailable:
		return new(UnavailableError)
	case codecConflict:
		return new(ConflictError)
	case codecHoldLimit:
		return new(HoldLimitError)
	case codecInvalid:
		return new(InvalidError)
	}
	return codecErrors[min(int(n-codecPlain), len(codecErrors)-1)]
}

// numbered writes which error follows, and returns it without what wraps it.
func (f *form) numbered(err error) error {
	n, found := codecUnavailable, error(nil)
	if e, ok := errors.AsType[*UnavailableError](err); ok { // first: it wraps others
		found = e
	} else if e, ok := errors.AsType[*NotOwnerError](err); ok {
		n, found = codecNotOwner, e
	} else if e, ok := errors.AsType[*ConflictError](err); ok {
		n, found = codecConflict, e
	} else if e, ok := errors.AsType[*HoldLimitError](err); ok {
		n, found = codecHoldLimit, e
	} else if e, ok := errors.AsType[*InvalidError](err); ok {
		n, found = codecInvalid, e
	} else if i := slices.IndexFunc(codecErrors, func(known error) bool { return errors.Is(err, known) }); i >= 0 {
		n, found = codecPlain+uint8(i), codecErrors[i]
	} else {
		found = &UnavailableError{Outcome: Unknown, Err: errStrange}
	}
	small(f, &n, 0, n)
	return found
}

// unavailable has the sentence for the client, and whether anything can have happened. What
// the cause was is in the log of the node that met it.
func (f *form) unavailable(e *UnavailableError) {
	why, none := "", e.Outcome != Unknown
	if !f.reading {
		why = e.Error()
	}
	f.flags(&none)
	f.text(&why, maxCodecText)
	if f.reading {
		e.Err = Told(why)
		if none {
			e.Outcome = NotSent
		}
	}
}

func (f *form) conflict(e *ConflictError) {
	f.flags(&e.Unknown)
	f.text(&e.Sentence, maxCodecText)
	f.text(&e.Cause, MaxKeyBytes)
	number(f, &e.Nonce)
	small(f, &e.Status, 0, Consumed)
	number(f, &e.Attempt)
	f.hash(&e.TxHash)
	f.time(&e.HeldUntil)
	list(f, &e.Holds, func(f *form, h *HoldState) {
		number(f, &h.Nonce)
		number(f, &h.Attempt)
		small(f, &h.Status, Held, Consumed)
		f.flags(&h.Unknown)
	})
	if e.Nonce < -1 || e.Nonce >= 0 && e.Status == 0 || len(e.Holds) > MaxCount {
		f.fail("a conflict about nonce %d in no state, or about %d holds", e.Nonce, len(e.Holds))
	}
}

// fail ends the reading. What is written stays: the node that reads it says what is wrong with it.
func (f *form) fail(format string, args ...any) {
	if !f.reading {
		return
	}
	if f.err == nil {
		f.err = fmt.Errorf("%w: "+format, append([]any{ErrCodec}, args...)...)
	}
	f.b = nil
}
