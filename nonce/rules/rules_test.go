package rules_test

import (
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/rules"
)

// room is a signer whose row, history and request ids are kept in memory, and changed by
// plans alone.
type room struct {
	testing.TB
	rules    rules.Rules
	signer   nonce.Signer
	history  map[int64]*nonce.Past
	requests map[string]*nonce.Remembered
	chain    nonce.ChainSigner
	now      time.Duration // of the store's clock, since the beginning
	events   []nonce.Event
	shard    lease.Shard // what a loss of its log left
	after    int64       // when the last answer may be told; 0: at once
	plans    int
	watch    nonce.Watch // as the last plan has it
}

func newRoom(t testing.TB) *room {
	return &room{
		TB: t, rules: rules.Rules{DefaultHold: time.Minute, MaxLive: noncetest.MaxHolds},
		history: make(map[int64]*nonce.Past), requests: make(map[string]*nonce.Remembered), now: 1000 * time.Hour,
	}
}

// run plans ops and follows the plan, as often as it takes.
func (r *room) run(ops ...*noncetest.Op) {
	r.Helper()
	in := rules.Input{Chain: r.chain, LostUntil: r.shard.GrantUntil, History: make(map[int64]*nonce.Past), Requests: make(map[string]*nonce.Remembered), Token: 1}
	for tries := 0; len(ops) > 0; {
		before := r.signer
		before.Live = slices.Clone(before.Live)
		in.Signer, in.Now = r.signer, nonce.Clock{Earliest: r.now.Milliseconds(), Latest: r.now.Milliseconds()}
		plan := r.rules.Make(&in, noncetest.Requests(ops))
		r.plans++
		r.watch = plan.Watch
		if !slices.Equal(before.Live, r.signer.Live) {
			r.Fatal("a plan changed the signer it was given")
		}
		known := slices.ContainsFunc(plan.Requests, func(q nonce.Remembered) bool { return r.requests[q.ID] != nil })
		for _, q := range plan.Requests { // where one is known the store refuses and says so
			if known {
				in.Requests[q.ID] = r.requests[q.ID]
			}
		}
		if known {
			continue
		}
		if len(plan.Answers) == 0 && !plan.Wants.Any() {
			r.Fatalf("%v: not answered, and nothing is wanted", ops[0].Kind)
		}
		if tries++; tries > 3*len(ops)+10 {
			r.Fatalf("%v: never answered; wanted: %+v", ops[0].Kind, plan.Wants)
		}
		r.follow(plan)
		for i := range plan.Answers {
			r.tell(ops[i], &plan.Answers[i])
		}
		ops = ops[len(plan.Answers):]
		in.History, in.Requests = make(map[int64]*nonce.Past), make(map[string]*nonce.Remembered)
		for _, n := range plan.Wants.History {
			in.History[n] = r.history[n]
		}
		for _, id := range plan.Wants.Requests {
			in.Requests[id] = r.requests[id]
		}
	}
}

// follow does what a store does with a plan.
func (r *room) follow(plan *rules.Plan) {
	r.Helper()
	if plan.NotBefore > r.now.Milliseconds() {
		r.Fatalf("a plan ends a hold %d ms early", plan.NotBefore-r.now.Milliseconds())
	}
	if !plan.Writes && (len(plan.History) > 0 || len(plan.Requests) > 0 || plan.Signer.Version != r.signer.Version) {
		r.Fatalf("a plan that writes nothing has %+v", plan)
	}
	r.signer = plan.Signer
	for _, p := range plan.History {
		p.Again = false // only of the write
		if p.Earlier != nil {
			r.Fatalf("the earlier hold of nonce %d is kept when it is consumed", p.Nonce)
		}
		if old := r.history[p.Nonce]; old != nil && old.Attempt > p.Attempt {
			r.Fatalf("the history of nonce %d goes back from attempt %d to %d", p.Nonce, old.Attempt, p.Attempt)
		}
		r.history[p.Nonce] = &p
	}
	for _, q := range plan.Requests {
		r.requests[q.ID] = &q
	}
	r.events = append(r.events, plan.Own...)
	last := int64(-1)
	for _, e := range r.signer.Live {
		if e.Nonce <= last || e.Nonce >= r.signer.Next || e.Attempt < 1 || e.Status != nonce.Held && e.Status != nonce.Released {
			r.Fatalf("the live state is %+v", r.signer)
		}
		last = e.Nonce
	}
}

// tell gives an op its answer.
func (r *room) tell(op *noncetest.Op, a *rules.Answer) {
	r.after = a.After
	if op.Err = a.Err; a.Err != nil {
		return
	}
	op.Nonces, op.Attempts, op.Status, op.Hashes, op.Before, op.Earlier = a.Nonces, a.Attempts, a.Status, a.Hashes, a.Before, a.Earlier
	if op.Next = a.Next; a.Summary != nil {
		op.Summary = *a.Summary
	}
	if op.Kind == nonce.KindSetFloor {
		op.Result.Floor = a.Floor
	}
	op.Result.Attempt = op.Request.Attempt
	if a.Attempt != 0 {
		op.Result.Attempt = a.Attempt
	}
}

// rows are the nonces of the signer of which something is known, in order.
func (r *room) rows() (rows []nonce.Row) {
	for n := range r.signer.Next {
		if i, ok := r.signer.Find(n); ok {
			rows = append(rows, r.signer.Live[i].Row())
		} else if p := r.history[n]; p != nil {
			rows = append(rows, p.Row())
		}
		if n > 100 {
			break
		}
	}
	return rows
}

// batches runs ops in pieces, between which lists are read, as a service does.
func (r *room) batches(ops []*noncetest.Op, size int) (got []string) {
	var batch []*noncetest.Op
	flush := func() {
		for part := range slices.Chunk(batch, size) {
			r.run(part...)
		}
		for _, op := range batch {
			got = append(got, noncetest.Result(op))
		}
		batch = batch[:0]
	}
	for _, op := range ops {
		if op.Kind != nonce.KindList {
			batch = append(batch, op)
			continue
		}
		flush()
		op.Page.Rows = r.rows()
		got = append(got, noncetest.Result(op))
	}
	flush()
	return got
}

func TestRules(t *testing.T) {
	for _, rule := range noncetest.Rules() {
		lines, want := noncetest.Lines(rule.Script)
		for name, size := range map[string]int{"one by one": 1, "in pairs": 2, "at once": 1000} {
			t.Run(rule.Name+"/"+name, func(t *testing.T) {
				ops := make([]*noncetest.Op, len(lines))
				for i, line := range lines {
					ops[i] = noncetest.Parse(t, line)
				}
				for i, got := range newRoom(t).batches(ops, size) {
					if got != want[i] {
						t.Errorf("%s: got %q, want %q", lines[i], got, want[i])
					}
				}
			})
		}
	}
}

// TestHoldsAreLongerThanTheClocksErrorOnBothSides: the store's clock is known to lie between two
// times. A hold that is written lasts from the later one on, and one that ends is over by the
// earlier one.
func TestHoldsAreLongerThanTheClocksErrorOnBothSides(t *testing.T) {
	r := rules.Rules{DefaultHold: time.Minute, MaxLive: 16}
	clock := func(earliest int64) nonce.Clock { return nonce.Clock{Earliest: earliest, Latest: earliest + 500} }
	in := rules.Input{Token: 1, Now: clock(10_000)}
	plan := r.Make(&in, []*nonce.Request{{Kind: nonce.KindAllocate, Count: 1}})
	if got := plan.Signer.Live[0].Until; got != 10_500+60_000 {
		t.Errorf("a hold of a minute that begins between 10,000 and 10,500 lasts until %d", got)
	}
	in.Signer = plan.Signer
	for _, now := range []struct {
		at   int64
		want nonce.Status
	}{{71_499, nonce.Held}, {71_500, nonce.Released}} { // a second after the deadline
		in.Now = clock(now.at)
		plan := r.Make(&in, []*nonce.Request{{Kind: nonce.KindStatus}})
		if got := plan.Signer.Live[0].Status; got != now.want {
			t.Errorf("between %d and %d the hold is %v, want %v", in.Now.Earliest, in.Now.Latest, got, now.want)
		}
	}
}
