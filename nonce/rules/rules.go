// Package rules is the state machine of a signer. Its input is the signer's row and some ops;
// its output is the new row, the other rows to write, and the answer to each op.
//
// It is pure. It knows no clock, no store and no other signer, and does not change its input.
// Its result is a plan: the service commits it on the condition that the row still has the
// version that was planned on, and nothing of the plan counts before that.
//
// A plan applies its ops one after the other, each to the result of the one before. It ends
// early at an op that needs something which was not read, a row of the history or a request
// id; it names that, and the caller reads it and plans the rest.
//
// It does not promise that a plan is ever committed: if it is not, the caller that made it
// releases what the plan claimed (Input.Claim). The package has no goroutines and no locks;
// Rules may be used by many goroutines at a time, as long as their Inputs share no mutable
// data.
//
// Make first ends holds that are over (expire), then applies what the chain says (align), then
// the ops, so that an op sees the signer's present state.
//
// Where to begin reading: Make and draft in rules.go, then allocate.go and marks.go (the ops),
// chain.go (what a chain changes), doubt.go (after a log was lost).
package rules

import (
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

// Rules are the bounds that a service is run with.
type Rules struct {
	DefaultHold time.Duration
	MaxLive     int // HELD and RELEASED nonces of one signer together, at least 1
	// NewSigners says what becomes of a hand-out for a signer that is not there yet;
	// "": nonce.AllowNew.
	NewSigners nonce.NewSigners
}

// Input is what is known of a signer when its ops are planned.
type Input struct {
	Signer nonce.Signer
	Token  int64 // under which the plan will be written; 0 in mode basic
	Now    nonce.Clock
	// History has what was read of consumed nonces; a nil value: no row is kept.
	History map[int64]*nonce.Past
	// Requests has what was read of request ids; a nil value: it is not known.
	Requests map[string]*nonce.Remembered
	Chain    nonce.ChainSigner // nil: no chain is configured for the signer
	// Claim takes room among the open holds of the op's principal for so many nonces, or
	// reports that there is none; nil: they are not counted. The caller gives the room back when
	// the plan is not committed.
	Claim func(req *nonce.Request, count int) bool
	// LostUntil is until when a log of the signer's shard that was lost may have given its
	// nonces, by the store's clock, in Unix milliseconds.
	LostUntil int64
	// NoExpiry leaves overdue holds as they are: the store's clock has jumped.
	NoExpiry bool
}

// Plan is what a commit is to do for one signer.
type Plan struct {
	Signer nonce.Signer // as it will be
	Writes bool         // else the commit only compares
	// History are the nonces that are CONSUMED by it, or were and get another hash. The
	// history may have a row of such a nonce, of no higher attempt.
	History []nonce.Past
	// Requests are the ids to be remembered. The store refuses the commit of a signer
	// where one of them is known.
	Requests []nonce.Remembered
	// Answers are for the first len(Answers) ops. The next one waits for what Wants says;
	// with nothing wanted, all are answered.
	Answers []Answer
	Wants   Wants
	// Own are the events that no op caused: of holds that were over and of what the chain
	// said. They have no signer, version or time yet, and are published before those of the
	// ops.
	//
	// Expired is how many holds ended, or became unknown, because their client said nothing
	// in time.
	Own     []nonce.Event
	Expired int
	// NotBefore is the store's time, in Unix milliseconds, before which the store must not
	// write the plan, because a hold that it ends may last until then. 0: at once.
	NotBefore int64
	// Watch is how the signer is to stand in the list of those whose chain is watched.
	Watch nonce.Watch
}

// Wants are what must be read before the rest of the ops can be planned, after this plan is
// committed.
type Wants struct {
	History  []int64
	Requests []string
}

// Any reports whether something is wanted.
func (w *Wants) Any() bool { return len(w.History)+len(w.Requests) > 0 }

// Answer is what becomes of one op, if the plan is committed.
type Answer struct {
	Err      error // all below is then zero
	Wrote    bool  // the plan changes something for the op
	Took     bool  // of a markSigned: it handed the nonce out as well, because it was not held
	Nonces   []int64
	Attempts []int64
	Token    int64
	Until    int64         // of a hold: the deadline, store clock, Unix milliseconds; 0: none
	Left     time.Duration // of a hold: what is left of it
	Status   nonce.Status
	Attempt  int64 // of a markSigned that named no attempt: the one it was recorded for
	Hashes   nonce.TxHashes
	Replaced nonce.TxHash
	Before   *nonce.Before
	Earlier  []*nonce.Earlier // as nonce.Result has it
	Floor    int64
	Next     int64
	Summary  *nonce.Summary // of a status only

	// After is the store's time, in Unix milliseconds, before which the op must not be told:
	// another caller may still be given what it ends. 0: at once.
	After int64

	// Ends is the hold that the op ended, or gave another deadline.
	Ends Ended
	// Claimed is the room that was taken among the open holds of the op's principal.
	Claimed int
}

// Ended is whose hold ended, and its deadline. Holder is zero where there is none, or where principals are not
// told apart.
type Ended struct {
	Holder nonce.Principal
	Until  int64
}

// graceMs is how long a hold lasts beyond its deadline at least before it is ended. A
// holder that sends at the last moment by its own clock, which may be behind, is covered.
const graceMs = 1000

// Make plans requests, which are all of one signer.
func (r *Rules) Make(in *Input, requests []*nonce.Request) *Plan {
	return r.MakeIn(new(Plan), in, requests)
}

// MakeIn is Make in the memory of a plan, and of its Answers and its History, that is not needed any more.
func (r *Rules) MakeIn(plan *Plan, in *Input, requests []*nonce.Request) *Plan {
	*plan = Plan{Signer: in.Signer, Answers: slices.Grow(plan.Answers[:0], len(requests)), History: plan.History[:0]}
	d := drafts.Get().(*draft)
	defer func() {
		*d = draft{}
		drafts.Put(d)
	}()
	*d = draft{rules: r, in: in, plan: plan}
	if in.Chain != nil {
		d.view = in.Chain.View(in.Signer.Next)
	}
	d.expire()
	d.align(requests)
	for _, req := range requests {
		d.req, d.ans = req, Answer{}
		if rule := apply[req.Kind]; rule == nil {
			d.ans.Err = nonce.ErrInternal
		} else if !d.run(rule) {
			d.wantOf(requests[len(d.plan.Answers):])
			break
		}
		if d.ans.Err != nil {
			d.ans = Answer{Err: d.ans.Err}
		}
		d.plan.Answers = append(d.plan.Answers, d.ans)
	}
	if d.plan.Writes {
		d.plan.Signer.Version++
	}
	d.plan.Watch = d.watch()
	return d.plan
}

// Summary is the signer in figures, as it is.
func (r *Rules) Summary(in *Input) nonce.Summary {
	d := &draft{rules: r, in: in, plan: &Plan{Signer: in.Signer}}
	if in.Chain != nil {
		d.view = in.Chain.View(in.Signer.Next)
	}
	d.status()
	return *d.ans.Summary
}

var drafts = sync.Pool{New: func() any { return new(draft) }}

// draft is a plan being made. The rule of a kind returns false when something must be read first;
// then nothing of the request is in the plan.
type draft struct {
	rules *Rules
	in    *Input
	plan  *Plan
	view  nonce.ChainView
	owned bool // plan.Signer.Live is a copy, which may be changed; else it is the caller's

	req *nonce.Request
	ans Answer
}

// apply has the rule of each kind that a plan can be made of. A rule leaves what becomes of the
// request in ans, or reports that something must be read before.
var apply = map[nonce.Kind]func(*draft) (read bool){
	nonce.KindAllocate:       (*draft).allocate,
	nonce.KindMarkUsed:       func(d *draft) bool { return d.mark(d.markUsed) },
	nonce.KindMarkRecyclable: func(d *draft) bool { return d.mark(d.markRecyclable) },
	nonce.KindExtend:         func(d *draft) bool { return d.mark(d.extend) },
	nonce.KindMarkSigned:     (*draft).markSigned,
	nonce.KindRepair:         (*draft).repair,
	nonce.KindSetFloor:       (*draft).setFloor,
	nonce.KindStatus:         (*draft).status,
}

// run applies the rule of the op. Of a dry run it leaves the answer, and the plan as it was.
func (d *draft) run(rule func(*draft) bool) (read bool) {
	if !d.req.DryRun {
		return rule(d)
	}
	was, owned := *d.plan, d.owned
	d.plan.History, d.plan.Requests, d.plan.Own = slices.Clone(was.History), slices.Clone(was.Requests), slices.Clone(was.Own)
	d.owned = false // the entries are copied before they change
	read = rule(d)
	*d.plan, d.owned = was, owned
	d.ans.Wrote, d.ans.Took, d.ans.After, d.ans.Ends = false, false, 0, Ended{}
	return read
}

// wantOf lists what ops may need, also what was read already: it may be something else
// once this plan is committed.
func (d *draft) wantOf(requests []*nonce.Request) {
	w := &d.plan.Wants
	for _, req := range requests {
		if req.RequestID != "" && !slices.Contains(w.Requests, req.RequestID) {
			w.Requests = append(w.Requests, req.RequestID)
		}
		if !req.Kind.OfNonce() {
			continue
		}
		n := d.nonceOf(req)
		if _, live := d.plan.Signer.Find(n); !live && n < d.plan.Signer.Next && !slices.Contains(w.History, n) {
			w.History = append(w.History, n)
		}
	}
}

// row is a nonce as it is now. there: something is known of it. read: that can be said;
// else its row of the history must be read first.
func (d *draft) row(n int64) (row nonce.Row, there, read bool) {
	s := &d.plan.Signer
	if i, ok := s.Find(n); ok {
		return s.Live[i].Row(), true, true
	}
	for i := range d.plan.History {
		if d.plan.History[i].Nonce == n {
			return d.plan.History[i].Row(), true, true
		}
	}
	if n >= d.in.Signer.Next {
		return nonce.Row{}, false, true
	}
	past, read := d.in.History[n]
	if past == nil {
		return nonce.Row{}, false, read
	}
	return past.Row(), true, true
}

// live copies the entries, which are the caller's until then, with room for more. It must
// be called before an entry is changed.
func (d *draft) live(more int) {
	if s := &d.plan.Signer; !d.owned {
		s.Live, d.owned = append(make([]nonce.Entry, 0, len(s.Live)+more), s.Live...), true
	}
	d.plan.Writes = true
}

// put has an entry be as it is given, in the place of one of its nonce if there is one.
func (d *draft) put(e nonce.Entry) {
	d.live(1)
	s := &d.plan.Signer
	if i, ok := s.Find(e.Nonce); ok {
		s.Live[i] = e
	} else {
		s.Live = slices.Insert(s.Live, i, e)
	}
}

// consume takes a nonce out of the entries, if it is there, and into the history.
func (d *draft) consume(p nonce.Past) {
	d.live(0)
	p.Earlier = nil
	s := &d.plan.Signer
	i, live := s.Find(p.Nonce)
	if live {
		s.Live = slices.Delete(s.Live, i, i+1)
	}
	for i := range d.plan.History {
		if d.plan.History[i].Nonce == p.Nonce {
			p.Again = d.plan.History[i].Again
			d.plan.History[i] = p
			return
		}
	}
	// The store may have a row of the nonce already: when it is not live, it was consumed
	// before; when its attempt is above 1, it may have been consumed before a repair.
	p.Again = !live || p.Attempt > 1
	d.plan.History = append(d.plan.History, p)
}

// until is the deadline of a hold that is written now. It counts from the latest time that
// it may be, so a client that counts the hold from its request on never believes it longer.
func (d *draft) until(hold time.Duration) int64 { return d.in.Now.Latest + ceilMillis(hold) }

// left is the least that can be left of a hold.
func (d *draft) left(until int64) time.Duration {
	return time.Duration(max(0, until-d.in.Now.Latest)) * time.Millisecond
}

func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func (d *draft) holdOf(req *nonce.Request) time.Duration {
	if req.Hold == 0 {
		return d.rules.DefaultHold
	}
	return req.Hold
}

// setFloor raises the floor, and makes a signer known that is not there yet.
func (d *draft) setFloor() bool {
	s, floor := &d.plan.Signer, d.req.Floor
	if floor > s.Floor || s.Version == 0 && !d.plan.Writes {
		d.raise(floor)
		d.ans.Wrote = true
	}
	d.ans.Floor, d.ans.Next, d.ans.After = s.Floor, s.Next, d.grantRuns()
	return true
}

// raise brings the floor up. What is RELEASED below it is CONSUMED.
func (d *draft) raise(floor int64) {
	s := &d.plan.Signer
	s.Floor, s.Next, d.plan.Writes = max(s.Floor, floor), max(s.Next, floor), true
	for _, e := range slices.Clone(s.Live) {
		if e.Nonce < floor && e.Status == nonce.Released {
			d.consume(nonce.Past{Nonce: e.Nonce, Attempt: e.Attempt, Holder: e.Holder, Note: nonce.Note{Reason: nonce.ReasonBelowFloor}})
		}
	}
}

// status counts. An overdue hold counts as RELEASED, or, on a chain that is asked, as the
// hold that it is.
func (d *draft) status() bool {
	s := &d.plan.Signer
	sum := nonce.Summary{Exists: s.Version > 0 || d.plan.Writes, Next: s.Next, Floor: s.Floor, Version: s.Version, LowestHeld: -1}
	if d.plan.Writes {
		sum.Version++
	}
	for i := range s.Live {
		e := &s.Live[i]
		if e.Status == nonce.Released {
			sum.Released++
			continue
		}
		unknown := e.Note != nil && e.Note.Reason == nonce.ReasonUnknown
		if unknown {
			sum.Unknown++
		}
		if e.Until <= d.in.Now.Earliest && !unknown && d.in.Chain == nil {
			to, _ := d.judge(e)
			if to != nonce.Consumed { // else it is about to be CONSUMED
				sum.Released++
				sum.Overdue++
			}
			continue
		}
		sum.Held++
		if sum.LowestHeld < 0 {
			sum.LowestHeld = e.Nonce
		}
	}
	sum.Consumed = sum.Next - sum.Held - sum.Released
	d.ans.Summary = &sum
	return true
}

func (d *draft) conflict(row nonce.Row, sentence string) {
	d.ans.Err = &nonce.ConflictError{
		Sentence: sentence, Nonce: row.Nonce, Status: row.Status, Attempt: row.Attempt,
		TxHash: row.TxHash, HeldUntil: row.HeldUntil, Unknown: row.Unknown(),
	}
}
