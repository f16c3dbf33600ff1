//go:build unix

package redisstore_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// model is what Redis must have of one signer, and what the store has followed.
type model struct {
	*bench
	rng      *rand.Rand
	rows     map[int64]nonce.Row
	consumed map[int64]int64 // by which version
	flushed  map[int64]int64 // attempts of CONSUMED ones that are not in Redis any more
	requests map[string]nonce.Request
	events   []int64 // versions that are not acknowledged
	ids      int
}

// TestRandomHistoriesAgreeWithAModel runs random changes, take-overs, refusals and
// flushes of a few signers, and compares all that can be read after each.
func TestRandomHistoriesAgreeWithAModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	client := server.Client(t)
	store := open(t, client)
	models := make([]*model, 3)
	for i := range models {
		b := &bench{t: t, store: store, client: client, now: epoch}
		b.belief = nonce.FastBelief{ID: int64(i + 1), Signer: "signer" + strconv.Itoa(i), Token: 1, Version: int64(i) << 32}
		b.seed(nil, nil)
		models[i] = &model{
			bench: b, rng: rng, rows: make(map[int64]nonce.Row), consumed: make(map[int64]int64), flushed: make(map[int64]int64), requests: make(map[string]nonce.Request),
		}
	}
	for step := range 1500 {
		m := models[rng.IntN(len(models))]
		m.now = m.now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
		switch rng.IntN(12) {
		case 0:
			m.newOwner()
		case 1:
			m.refusal()
		case 2:
			m.acknowledge()
		case 3:
			m.copyAgain()
		default:
			m.random()
		}
		m.compare()
		if t.Failed() {
			t.Fatalf("seed %d, step %d, %s", seed, step, m.belief.Signer)
		}
	}
}

// random commits a random change that the rules allow.
func (m *model) random() {
	c := m.plan()
	m.commit(c)
	m.events = append(m.events, m.belief.Version)
	for _, r := range c.Rows {
		row := nonce.Row{Nonce: r.Nonce, Status: r.Status, Attempt: r.Attempt, Token: c.Token, Holder: r.Holder, TxHash: r.TxHash, Replaced: r.Replaced, Reason: r.Reason}
		if r.Status == nonce.Held {
			row.HeldUntil = m.now.Add(r.Hold)
		}
		m.rows[r.Nonce] = row
		delete(m.consumed, r.Nonce)
		delete(m.flushed, r.Nonce)
		if r.Status == nonce.Consumed {
			m.consumed[r.Nonce] = m.belief.Version
		}
	}
	for n, row := range m.rows {
		if c.BelowFloor && n < c.Floor && row.Status == nonce.Released {
			m.rows[n] = nonce.Row{Nonce: n, Status: nonce.Consumed, Attempt: row.Attempt, Token: c.Token, Holder: row.Holder, TxHash: row.TxHash, Replaced: row.Replaced, Reason: nonce.ReasonBelowFloor}
			m.consumed[n] = m.belief.Version
		}
	}
	for _, r := range c.Requests {
		m.requests[r.ID] = r
	}
}

func (m *model) plan() nonce.FastChange {
	c := m.change()
	for n, row := range m.sorted() {
		if m.rng.IntN(4) != 0 || len(c.Rows) > 6 {
			continue
		}
		r := nonce.RowChange{
			Nonce: n, FromStatus: row.Status, FromAttempt: row.Attempt, Attempt: row.Attempt, Holder: row.Holder, TxHash: row.TxHash, Replaced: row.Replaced,
		}
		switch {
		case row.Status != nonce.Released && m.rng.IntN(4) == 0:
			r.Status, r.Attempt, r.Hold, r.Reason = nonce.Held, row.Attempt+1, m.hold(), nonce.ReasonRepair
		case row.Status == nonce.Held && m.rng.IntN(2) == 0:
			m.sign(&r)
			r.Status, r.Hold = nonce.Held, m.hold()
			r.Reason = []string{"", nonce.ReasonUnknown, nonce.ReasonForwarded}[m.rng.IntN(3)]
		case row.Status == nonce.Consumed && m.rng.IntN(2) == 0:
			m.sign(&r)
			r.Status, r.Reason = nonce.Consumed, row.Reason
		case row.Status == nonce.Held && m.rng.IntN(2) == 0, row.Status == nonce.Released && m.rng.IntN(3) == 0:
			m.sign(&r)
			r.Status = nonce.Consumed
		case row.Status == nonce.Held && n < m.floor:
			r.Status, r.Reason = nonce.Consumed, nonce.ReasonBelowFloor
		case row.Status == nonce.Held:
			r.Status, r.Reason = nonce.Released, []string{"", "a reason", nonce.ReasonExpired}[m.rng.IntN(3)]
		case row.Status == nonce.Released:
			r.Status, r.Attempt, r.Hold, r.Holder = nonce.Held, row.Attempt+1, m.hold(), m.holder()
		default:
			continue
		}
		if row.Status == nonce.Held {
			c.Held--
		}
		if r.Status == nonce.Held {
			c.Held++
		}
		c.Rows = append(c.Rows, r)
	}
	m.repair(&c)
	for range m.rng.IntN(3) {
		c.Rows = append(c.Rows, nonce.RowChange{Nonce: c.Next, Fresh: true, Status: nonce.Held, Attempt: nonce.FirstAttempt(c.Version), Hold: m.hold(), Holder: m.holder()})
		c.Next++
		c.Held++
	}
	if m.rng.IntN(3) == 0 {
		m.ids++
		c.Requests = []nonce.Request{{ID: strconv.Itoa(m.ids), Hash: [16]byte{byte(m.ids)}}}
		for _, r := range c.Rows {
			c.Requests[0].Nonces, c.Requests[0].Attempts = append(c.Requests[0].Nonces, r.Nonce), append(c.Requests[0].Attempts, r.Attempt)
		}
	}
	if m.rng.IntN(8) == 0 {
		c.Floor, c.BelowFloor = c.Floor+int64(m.rng.IntN(4)), true
		c.Next = max(c.Next, c.Floor)
	}
	return c
}

// sign adds a hash, or, now and then, does not.
func (m *model) sign(r *nonce.RowChange) {
	if r.Replaced.Len()+1 < nonce.MaxHashes && m.rng.IntN(4) > 0 {
		if r.TxHash != (nonce.TxHash{}) {
			r.Replaced = r.Replaced.Append(r.TxHash)
		}
		r.TxHash = nonce.TxHash{byte(m.rng.IntN(256)), ' ', 0, '#', 31: 1}
	}
}

// repair hands out, now and then, a nonce that Redis has no row of: it was consumed and
// flushed, or a floor has skipped it.
func (m *model) repair(c *nonce.FastChange) {
	if m.rng.IntN(4) > 0 {
		return
	}
	for n := range m.next {
		r := nonce.RowChange{Nonce: n, Status: nonce.Held, Attempt: 1, Hold: m.hold(), Holder: m.holder(), Reason: nonce.ReasonRepair}
		if _, there := m.rows[n]; there {
			continue
		}
		if attempt, flushed := m.flushed[n]; flushed {
			r.FromStatus, r.FromAttempt, r.Attempt = nonce.Consumed, attempt, attempt+1
		} else {
			r.Fresh = true
		}
		c.Rows = append(c.Rows, r)
		c.Held++
		return
	}
}

func (m *model) holder() nonce.Principal { return []nonce.Principal{0, 1, 1<<63 | 0xab}[m.rng.IntN(3)] }

func (m *model) hold() time.Duration { return time.Duration(1+m.rng.IntN(20_000)) * time.Millisecond }

// sorted goes through the rows in order, so that a seed tells all.
func (m *model) sorted() func(func(int64, nonce.Row) bool) {
	return func(yield func(int64, nonce.Row) bool) {
		for _, n := range slices.Sorted(maps.Keys(m.rows)) {
			if !yield(n, m.rows[n]) {
				return
			}
		}
	}
}

// refusal tries a change that must be refused, or only compared.
func (m *model) refusal() {
	c, want := m.plan(), nonce.FastLost
	switch m.rng.IntN(6) {
	case 0:
		c.Version += int64(m.rng.IntN(3)) + 1
	case 1:
		c.Token, want = c.Token-1, nonce.FastFenced
	case 2:
		c.Token++
	case 3:
		c.Held++
	case 4:
		c.Check, want = true, nonce.FastDone
	default:
		if m.ids == 0 {
			return
		}
		known := strconv.Itoa(1 + m.rng.IntN(m.ids))
		if _, ok := m.requests[known]; !ok {
			return
		}
		c.Requests, want = append(c.Requests, nonce.Request{ID: known}), nonce.FastKnown
	}
	m.is(m.try(c), want)
}

func (m *model) newOwner() {
	m.belief.Token += 1 + int64(m.rng.IntN(10))
	least := m.belief
	least.Version -= min(int64(m.rng.IntN(3)), least.Version&0xffff)
	s := m.store.Read(testContext(m.t), m.now, []nonce.FastRead{{FastBelief: least, TakeOver: true}})[0]
	if s.Verdict != nonce.FastDone || s.Version != m.belief.Version {
		m.t.Errorf("the take-over: %+v", s)
	}
}

// acknowledge flushes a beginning of what is in the stream.
func (m *model) acknowledge() {
	events, shard := m.bench.events(), m.store.Shard(m.belief.Signer)
	mine := make([]int64, 0, len(events))
	for _, e := range events {
		if e.Signer == m.belief.Signer {
			mine = append(mine, e.To)
		}
	}
	if !slices.Equal(mine, m.events) {
		m.t.Errorf("events are %v, want %v", mine, m.events)
	}
	// Others may have the same shard: whose events are acknowledged with them.
	n := slices.IndexFunc(events, func(e redisstore.Event) bool { return e.Signer != m.belief.Signer })
	if n < 0 {
		n = len(events)
	}
	n = m.rng.IntN(n + 1)
	if err := m.store.Ack(testContext(m.t), shard, events[:n]); err != nil {
		m.t.Error(err)
	}
	m.events = m.events[n:]
	for row, version := range m.consumed {
		if n > 0 && version <= events[n-1].To {
			m.flushed[row] = m.rows[row].Attempt
			delete(m.consumed, row)
			delete(m.rows, row)
		}
	}
}

// copyAgain replaces all by a copy, as after a time in the other engine.
func (m *model) copyAgain() {
	if len(m.events) > 0 || m.rng.IntN(3) > 0 {
		return
	}
	m.belief.Version += 1 << 32
	var ids []nonce.Remembered
	for _, r := range m.requests {
		ids = append(ids, nonce.Remembered{Request: r, At: m.now})
	}
	rows := slices.Collect(maps.Values(m.rows))
	half := len(rows) / 2
	ctx := testContext(m.t)
	first := nonce.SeedPiece{FastBelief: m.belief, Rows: rows[:half]}
	last := nonce.SeedPiece{Nth: 1, Last: true, FastBelief: m.belief, Rows: rows[half:], Requests: ids, Next: m.next, Floor: m.floor, Held: m.held}
	for _, p := range []nonce.SeedPiece{first, last} {
		_, res := m.store.Seed(ctx, p)
		m.is(res, nonce.FastDone)
	}
	s := m.store.Read(ctx, m.now, []nonce.FastRead{{FastBelief: m.belief, Serve: true}})[0]
	m.is(nonce.FastResult{Verdict: s.Verdict, Err: s.Err}, nonce.FastDone)
}

// compare reads everything.
func (m *model) compare() {
	need := nonce.Need{Released: 1 + m.rng.IntN(10), Due: 1000}
	for n := range m.next {
		need.Nonces = append(need.Nonces, n)
	}
	for i := range m.ids + 1 {
		need.RequestIDs = append(need.RequestIDs, strconv.Itoa(i))
	}
	got := m.read(need)
	slices.SortFunc(got.Rows, func(a, b nonce.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	slices.SortFunc(got.Due, func(a, b nonce.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	slices.SortFunc(got.Requests, func(a, b nonce.Request) int { return cmp.Compare(a.ID, b.ID) })
	want := nonce.FastSnapshot{Snapshot: nonce.Snapshot{
		Signer: m.belief.Signer, Exists: true, ID: m.belief.ID, Next: m.next, Floor: m.floor, Version: m.belief.Version, Held: m.held, Now: m.now,
	}}
	sum := nonce.Summary{Exists: true, Next: m.next, Floor: m.floor, Version: m.belief.Version, LowestHeld: -1}
	for n, row := range m.sorted() {
		want.Rows = append(want.Rows, row)
		switch {
		case row.Status == nonce.Released:
			sum.Released++
			if want.ReleasedMore = len(want.Released) == need.Released; !want.ReleasedMore {
				want.Released = append(want.Released, n)
			}
		case row.Status == nonce.Held && !row.HeldUntil.After(m.now) && row.Reason != nonce.ReasonUnknown:
			if n >= m.floor {
				sum.Released++
				sum.Overdue++
			}
		case row.Status == nonce.Held:
			sum.Held++
			if sum.LowestHeld < 0 {
				sum.LowestHeld = n
			}
			if row.Reason == nonce.ReasonUnknown {
				sum.Unknown++
			}
		}
		if row.Status == nonce.Held && !row.HeldUntil.After(m.now) {
			want.Due = append(want.Due, row)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.requests)) {
		want.Requests = append(want.Requests, m.requests[id])
	}
	same(m.t, got, want)
	sum.Consumed = sum.Next - sum.Held - sum.Released
	figures, res := m.store.Summary(testContext(m.t), m.belief.Signer, m.belief.Identity, m.now)
	m.is(res, nonce.FastDone)
	same(m.t, figures, sum)
	rows, res := m.store.Rows(testContext(m.t), m.belief.Signer, m.belief.Identity, 0, 1000)
	m.is(res, nonce.FastDone)
	same(m.t, rows, append([]nonce.Row{}, want.Rows...))
}
