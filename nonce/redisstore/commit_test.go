//go:build unix

package redisstore_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
)

// row finds a row of a snapshot.
func row(t *testing.T, s nonce.FastSnapshot, n int64) (nonce.Row, bool) {
	t.Helper()
	if s.Verdict != nonce.FastDone {
		t.Fatalf("read: verdict %d, %v", s.Verdict, s.Err)
	}
	i := slices.IndexFunc(s.Rows, func(r nonce.Row) bool { return r.Nonce == n })
	if i < 0 {
		return nonce.Row{}, false
	}
	return s.Rows[i], true
}

func TestACommittedChangeIsReadBack(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(3, time.Minute))
	b.commit(b.mark(0, nonce.Released))
	b.commit(b.mark(1, nonce.Consumed))
	got := b.read(nonce.Need{Signer: signer, Released: 5, Nonces: []int64{0, 1, 2, 3}})
	want := nonce.Snapshot{
		Signer: signer, Exists: true, ID: 7, Next: 3, Version: 13, Held: 1, Now: epoch, Released: []int64{0},
		Rows: []nonce.Row{
			{Nonce: 0, Status: nonce.Released, Attempt: 1, Token: 5, Reason: "why not"},
			{Nonce: 1, Status: nonce.Consumed, Attempt: 1, Token: 5, TxHash: nonce.TxHash{0: 1, 31: 1}},
			{Nonce: 2, Status: nonce.Held, Attempt: 1, Token: 5, HeldUntil: epoch.Add(time.Minute)},
		},
	}
	same(t, got, nonce.FastSnapshot{Snapshot: want})
}

func TestAReleasedNonceIsHandedOutAgainWithItsNextAttempt(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(1, time.Minute))
	b.commit(b.mark(0, nonce.Released))
	c := b.change()
	c.Held++
	c.Rows = []nonce.RowChange{{FromStatus: nonce.Released, FromAttempt: 1, Status: nonce.Held, Attempt: 2, Hold: time.Second}}
	b.commit(c)
	s := b.read(nonce.Need{Released: 5, Nonces: []int64{0}})
	if r, ok := row(t, s, 0); !ok || r.Attempt != 2 || r.Status != nonce.Held || len(s.Released) != 0 {
		t.Errorf("the row is %+v, released are %v", r, s.Released)
	}
}

// chained are rows of a signer with hashes and reasons, as a copy brings them: 4 and 5
// are HELD, 6 is RELEASED, and 3 is CONSUMED, so it is not among them.
func chained() []nonce.Row {
	return []nonce.Row{
		{Nonce: 4, Status: nonce.Held, Attempt: 3, Token: 5, HeldUntil: epoch, TxHash: nonce.TxHash{2}, Replaced: nonce.TxHashes("").Append(nonce.TxHash{1}), Reason: nonce.ReasonUnknown},
		{Nonce: 5, Status: nonce.Held, Attempt: 1, Token: 5, HeldUntil: epoch, Reason: nonce.ReasonForwarded},
		{Nonce: 6, Status: nonce.Released, Attempt: 1, Token: 5, TxHash: nonce.TxHash{3}, Replaced: nonce.TxHashes("").Append(nonce.TxHash{1}).Append(nonce.TxHash{2}), Reason: "why not"},
	}
}

// TestACopyAndWhatFollowsItHaveHashesReasonsAndRepairs: of one that serves, and of one
// that follows the store.
func TestACopyAndWhatFollowsItHaveHashesReasonsAndRepairs(t *testing.T) {
	for _, name := range []string{"commit", "mirror"} {
		t.Run(name, func(t *testing.T) {
			b := seeded(t, server.Client(t), chained()...)
			all := nonce.Need{Released: 9, Due: 9, Nonces: []int64{2, 3, 4, 5, 6}}
			got := b.read(all)
			if rows, res := b.store.Rows(testContext(t), signer, b.belief.Identity, 0, 9); !slices.Equal(rows, chained()) {
				t.Errorf("it has %+v, %+v", rows, res)
			}
			if len(got.Due) != 2 || len(got.Released) != 1 {
				t.Errorf("due %+v, released %v", got.Due, got.Released)
			}
			sum, res := b.store.Summary(testContext(t), signer, b.belief.Identity, epoch)
			if b.is(res, nonce.FastDone); sum.Held != 1 || sum.Unknown != 1 || sum.Overdue != 1 || sum.Released != 2 || sum.LowestHeld != 4 {
				t.Errorf("it is %+v", sum)
			}
			c := b.change()
			c.Held += 3
			c.Rows = []nonce.RowChange{
				{Nonce: 2, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: time.Hour, Reason: nonce.ReasonRepair},
				{Nonce: 3, FromStatus: nonce.Consumed, FromAttempt: 7, Status: nonce.Held, Attempt: 8, Hold: time.Hour, TxHash: nonce.TxHash{9}, Reason: nonce.ReasonRepair},
				{Nonce: 4, FromStatus: nonce.Held, FromAttempt: 3, Status: nonce.Held, Attempt: 4, Hold: time.Hour, Reason: nonce.ReasonRepair},
				{Nonce: 5, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Held, Attempt: 1, Hold: time.Hour, TxHash: nonce.TxHash{4}},
				{Nonce: 6, FromStatus: nonce.Released, FromAttempt: 1, Status: nonce.Held, Attempt: 2, Hold: time.Hour, Reason: nonce.ReasonRecordFirst},
			}
			if name == "mirror" {
				b.is(b.store.Mirror(testContext(t), b.now, []nonce.FastChange{c})[0], nonce.FastDone)
			} else {
				b.is(b.try(c), nonce.FastDone)
			}
			b.follow(c)
			var want []nonce.Row
			for _, r := range c.Rows {
				want = append(want, nonce.Row{Nonce: r.Nonce, Status: r.Status, Attempt: r.Attempt, Token: 5, HeldUntil: epoch.Add(time.Hour), TxHash: r.TxHash, Reason: r.Reason})
			}
			got = b.read(all)
			if same(t, got.Rows, want); got.Held != 5 || len(got.Due) != 0 || len(got.Released) != 0 {
				t.Errorf("it is %+v", got)
			}
			b.commit(b.mark(2, nonce.Consumed))
		})
	}
}

// TestARepairOfWhatWasFlushedIsConsumedAndFlushedAgain: what an older event settles is
// not what a repair made of it.
func TestARepairOfWhatWasFlushedIsConsumedAndFlushedAgain(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(1, time.Minute))
	b.commit(b.mark(0, nonce.Consumed))
	used := b.events()
	repair := b.change()
	repair.Held++
	repair.Rows = []nonce.RowChange{{FromStatus: nonce.Consumed, FromAttempt: 1, Status: nonce.Held, Attempt: 2, Hold: time.Minute, Reason: nonce.ReasonRepair}}
	b.commit(repair)
	if err := b.store.Ack(testContext(t), b.store.Shard(signer), used); err != nil {
		t.Fatal(err)
	}
	if r, ok := row(t, b.read(nonce.Need{Nonces: []int64{0}}), 0); !ok || r.Status != nonce.Held || r.Attempt != 2 {
		t.Errorf("it is %+v", r)
	}
	again := b.mark(0, nonce.Consumed)
	again.Rows[0].FromAttempt, again.Rows[0].Attempt = 2, 2
	b.commit(again)
	if _, ok := row(t, b.read(nonce.Need{Nonces: []int64{0}}), 0); !ok {
		t.Error("it is gone before it was flushed")
	}
	b.flush()
	if r, ok := row(t, b.read(nonce.Need{Nonces: []int64{0}}), 0); ok {
		t.Errorf("it is flushed, and there still: %+v", r)
	}
}

func TestARefusedCommitWritesNothing(t *testing.T) {
	hold := nonce.Row{Nonce: 4, Status: nonce.Held, Attempt: 3, Token: 5, HeldUntil: epoch.Add(time.Minute)}
	free := nonce.Row{Nonce: 5, Status: nonce.Released, Attempt: 1, Token: 5}
	end := func(c *nonce.FastChange, from nonce.Status, attempt int64) {
		c.Rows = append(c.Rows, nonce.RowChange{Nonce: 4, FromStatus: from, FromAttempt: attempt, Status: nonce.Released, Attempt: 3})
		c.Held--
	}
	for name, tc := range map[string]struct {
		edit func(b *bench, c *nonce.FastChange)
		want nonce.FastVerdict
	}{
		"a lower version":           {func(_ *bench, c *nonce.FastChange) { c.Version-- }, nonce.FastLost},
		"a higher version":          {func(_ *bench, c *nonce.FastChange) { c.Version++ }, nonce.FastLost},
		"the next epoch":            {func(_ *bench, c *nonce.FastChange) { c.Version += 1 << 32 }, nonce.FastLost},
		"a lower token":             {func(_ *bench, c *nonce.FastChange) { c.Token-- }, nonce.FastFenced},
		"a token never put there":   {func(_ *bench, c *nonce.FastChange) { c.Token++ }, nonce.FastLost},
		"another key":               {func(_ *bench, c *nonce.FastChange) { c.ID++ }, nonce.FastLost},
		"another number of holds":   {func(_ *bench, c *nonce.FastChange) { c.Held++ }, nonce.FastLost},
		"a new nonce that is there": {func(_ *bench, c *nonce.FastChange) { c.Rows[0].Nonce = 5 }, nonce.FastLost},
		"a repair, as new, of one that is there": {func(_ *bench, c *nonce.FastChange) {
			c.Rows[0].Nonce, c.Rows[0].Reason = 5, nonce.ReasonRepair
		}, nonce.FastLost},
		"a new nonce below the cursor without a repair": {func(_ *bench, c *nonce.FastChange) { c.Rows[0].Nonce = 2 }, nonce.FastLost},
		"another attempt":             {func(_ *bench, c *nonce.FastChange) { end(c, nonce.Held, 2) }, nonce.FastLost},
		"the beginning of an attempt": {func(_ *bench, c *nonce.FastChange) { end(c, nonce.Held, 33) }, nonce.FastLost},
		"another status": {func(_ *bench, c *nonce.FastChange) {
			c.Rows = append(c.Rows, nonce.RowChange{Nonce: 4, FromStatus: nonce.Released, FromAttempt: 3, Status: nonce.Consumed, Attempt: 3})
		}, nonce.FastLost},
		"a row that is not there": {func(_ *bench, c *nonce.FastChange) {
			c.Rows = append(c.Rows, nonce.RowChange{Nonce: 3, FromStatus: nonce.Released, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1})
		}, nonce.FastLost},
		"a known request id": {func(_ *bench, c *nonce.FastChange) {
			c.Requests = []nonce.Request{{ID: "new"}, {ID: "known"}}
		}, nonce.FastKnown},
	} {
		t.Run(name, func(t *testing.T) {
			b := seeded(t, server.Client(t))
			b.seed([]nonce.Row{hold, free}, []nonce.Remembered{{Request: nonce.Request{ID: "known", Nonces: []int64{4}, Attempts: []int64{3}}, At: epoch}})
			before := dump(t, b.client)
			c := b.allocate(1, time.Minute)
			tc.edit(b, &c)
			b.is(b.try(c), tc.want)
			if tc.want != nonce.FastLost || errors.Is(b.try(c).Err, nonce.ErrLost) {
				same(t, dump(t, b.client), before)
				return
			}
			t.Error("the error does not wrap ErrLost")
		})
	}
}

func TestWhatAnotherServerAnsweredIsALossWhateverItWas(t *testing.T) {
	for name, edit := range map[string]func(*nonce.Identity){
		"another run id":  func(id *nonce.Identity) { id.RunID += "x" },
		"another history": func(id *nonce.Identity) { id.ReplID += "x" },
		"no identity":     func(id *nonce.Identity) { *id = nonce.Identity{} },
	} {
		t.Run(name, func(t *testing.T) {
			b := seeded(t, server.Client(t))
			edit(&b.belief.Identity)
			if s := b.read(nonce.Need{}); s.Verdict != nonce.FastLost || s.Exists {
				t.Errorf("read: %+v", s)
			}
			_, res := b.store.Summary(testContext(t), signer, b.belief.Identity, b.now)
			b.is(res, nonce.FastLost)
			_, res = b.store.Rows(testContext(t), signer, b.belief.Identity, 0, 1)
			b.is(res, nonce.FastLost)
			fenced := b.allocate(1, time.Minute)
			fenced.Token--
			b.is(b.try(fenced), nonce.FastLost)
			b.is(b.try(b.allocate(1, time.Minute)), nonce.FastLost)
		})
	}
}

func TestAMissingKeyIsALoss(t *testing.T) {
	for _, kind := range []string{"n:", "h:", "r:"} {
		t.Run(kind, func(t *testing.T) {
			b := seeded(t, server.Client(t))
			b.commit(b.allocate(2, time.Minute))
			b.commit(b.mark(0, nonce.Released))
			if n, err := b.client.Del(testContext(t), b.key(kind)).Result(); n != 1 || err != nil {
				t.Fatal("the key was not there:", n, err)
			}
			before := dump(t, b.client)
			b.is(b.try(b.allocate(1, time.Minute)), nonce.FastLost)
			check := b.change()
			check.Check = true
			b.is(b.try(check), nonce.FastLost)
			for name, s := range map[string]nonce.FastSnapshot{"read": b.read(nonce.Need{}), "take-over": b.takeOver(6, nonce.Need{})} {
				if s.Verdict != nonce.FastLost {
					t.Errorf("%s: %d, %v", name, s.Verdict, s.Err)
				}
			}
			_, res := b.store.Summary(testContext(t), signer, b.belief.Identity, b.now)
			b.is(res, nonce.FastLost)
			same(t, dump(t, b.client), before)
		})
	}
}

func TestAForeignKeyIsALossAndNothingIsWritten(t *testing.T) {
	for _, kind := range []string{"n:", "h:", "r:"} {
		t.Run(kind, func(t *testing.T) {
			b := seeded(t, server.Client(t))
			if err := b.client.Set(testContext(t), b.key(kind), "foreign", 0).Err(); err != nil {
				t.Fatal(err)
			}
			before := dump(t, b.client)
			b.is(b.try(b.allocate(1, time.Minute)), nonce.FastLost)
			same(t, dump(t, b.client), before)
		})
	}
}

func TestACheckComparesAndWritesNothing(t *testing.T) {
	b := seeded(t, server.Client(t))
	c := b.change()
	c.Check = true
	before := dump(t, b.client)
	b.is(b.try(c), nonce.FastDone)
	stale := c
	stale.Version--
	b.is(b.try(stale), nonce.FastLost)
	fenced := c
	fenced.Token--
	b.is(b.try(fenced), nonce.FastFenced)
	same(t, dump(t, b.client), before)
}

func TestNumbersAboveTheExactOnesOfLuaAreNotMixedUp(t *testing.T) {
	const big = math.MaxInt64 - 10
	b := seeded(t, server.Client(t))
	b.belief.Version, b.belief.Token, b.floor = 1<<62+1, 1<<62+1, big
	b.seed([]nonce.Row{{Nonce: big, Status: nonce.Released, Attempt: 1<<60 + 1, Token: 1}}, nil)
	for _, edit := range []func(*nonce.FastChange){
		func(c *nonce.FastChange) { c.Version-- },
		func(c *nonce.FastChange) { c.Version++ },
	} {
		c := b.allocate(1, time.Minute)
		edit(&c)
		b.is(b.try(c), nonce.FastLost)
	}
	c := b.allocate(1, time.Minute)
	c.Token--
	b.is(b.try(c), nonce.FastFenced)
	b.commit(b.allocate(3, time.Minute))
	c = b.mark(big+1, nonce.Released)
	b.commit(c)
	if s := b.takeOver(1<<62, nonce.Need{}); s.Verdict != nonce.FastFenced {
		t.Errorf("a lower token takes over: %d, %v", s.Verdict, s.Err)
	}
	s := b.takeOver(1<<62+2, nonce.Need{Released: 9})
	if r, ok := row(t, s, big); !ok || r.Attempt != 1<<60+1 || s.Next != big+4 || s.Version != 1<<62+3 {
		t.Errorf("it reads %+v", s)
	}
	if want := []int64{big, big + 1}; !slices.Equal(s.Released, want) {
		t.Errorf("released are %v, want %v", s.Released, want)
	}
}

func TestReleasedNoncesAreInTheOrderOfTheirNumbers(t *testing.T) {
	var rows []nonce.Row
	for _, n := range []int64{100, 9, 1 << 55, 10, 1<<55 + 1, 0} {
		rows = append(rows, nonce.Row{Nonce: n, Status: nonce.Released, Attempt: 1})
	}
	b := seeded(t, server.Client(t), rows...)
	s := b.read(nonce.Need{Released: 6})
	if want := []int64{0, 9, 10, 100, 1 << 55, 1<<55 + 1}; !slices.Equal(s.Released, want) || s.ReleasedMore {
		t.Errorf("released are %v and more: %v", s.Released, s.ReleasedMore)
	}
	if s = b.read(nonce.Need{Released: 5}); len(s.Released) != 5 || !s.ReleasedMore {
		t.Errorf("of six, five are %v and more: %v", s.Released, s.ReleasedMore)
	}
}

func TestAHigherFloorConsumesWhatIsReleasedBelowIt(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(6, time.Minute))
	for _, n := range []int64{0, 2, 4} {
		b.commit(b.mark(n, nonce.Released))
	}
	c := b.change()
	c.Floor, c.BelowFloor = 4, true
	// One that is released below it stays in the same change, and one is used.
	c.Rows = []nonce.RowChange{
		{Nonce: 1, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Released, Attempt: 1},
		{Nonce: 2, FromStatus: nonce.Released, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{9}},
	}
	c.Held--
	b.commit(c)
	s := b.read(nonce.Need{Released: 9, Nonces: []int64{0, 1, 2, 3, 4, 5}})
	if want := []int64{4}; !slices.Equal(s.Released, want) || s.Held != 2 || s.Floor != 4 {
		t.Errorf("released are %v, held %d, floor %d", s.Released, s.Held, s.Floor)
	}
	for n, want := range map[int64]nonce.Row{
		0: {Status: nonce.Consumed, Attempt: 1, Token: 5, Reason: nonce.ReasonBelowFloor},
		1: {Nonce: 1, Status: nonce.Consumed, Attempt: 1, Token: 5, Reason: nonce.ReasonBelowFloor},
		2: {Nonce: 2, Status: nonce.Consumed, Attempt: 1, Token: 5, TxHash: nonce.TxHash{9}},
		3: {Nonce: 3, Status: nonce.Held, Attempt: 1, Token: 5, HeldUntil: epoch.Add(time.Minute)},
	} {
		if got, _ := row(t, s, n); got != want {
			t.Errorf("row %d is %+v, want %+v", n, got, want)
		}
	}
	b.commit(b.allocate(1, time.Minute)) // the counts are right
	b.flush()
	if left := b.read(nonce.Need{Nonces: []int64{0, 1, 2, 3, 4, 5}}); len(left.Rows) != 3 {
		t.Errorf("rows %+v are left after the flush, want three", left.Rows)
	}
}

func TestAMirroredChangeLeavesNoEventAndNoConsumedRow(t *testing.T) {
	b := seeded(t, server.Client(t))
	mirror := func(c nonce.FastChange) {
		t.Helper()
		b.is(b.store.Mirror(testContext(t), b.now, []nonce.FastChange{c})[0], nonce.FastDone)
		b.follow(c)
	}
	b.seed(nil, []nonce.Remembered{{Request: nonce.Request{ID: "id"}, At: epoch}})
	first := b.allocate(3, time.Minute)
	first.Requests = []nonce.Request{{ID: "id", Nonces: []int64{0}, Attempts: []int64{1}}} // the store found it new
	mirror(first)
	if s := b.read(nonce.Need{RequestIDs: []string{"id"}}); len(s.Requests) != 1 || len(s.Requests[0].Nonces) != 1 {
		t.Errorf("the request id is %+v", s.Requests)
	}
	mirror(b.mark(0, nonce.Consumed))
	mirror(b.mark(1, nonce.Released))
	c := b.change()
	c.Floor, c.BelowFloor = 2, true
	mirror(c)
	late := b.change() // what was consumed by the floor proves to be used
	late.Rows = []nonce.RowChange{{Nonce: 1, FromStatus: nonce.Consumed, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{1}}}
	mirror(late)
	s := b.read(nonce.Need{Released: 1, Nonces: []int64{0, 1, 2}})
	if _, ok := row(t, s, 2); !ok || len(s.Rows) != 1 || s.Held != 1 {
		t.Errorf("it reads %+v", s.Snapshot)
	}
	if events := b.events(); len(events) != 0 {
		t.Errorf("events %+v", events)
	}
}

func TestOneRefusalInABatchConcernsNobodyElse(t *testing.T) {
	client := server.Client(t)
	store := open(t, client)
	var all []*bench
	var changes []nonce.FastChange
	for i := range 20 {
		b := &bench{t: t, store: store, client: client, now: epoch}
		b.belief = nonce.FastBelief{ID: int64(i + 1), Signer: signer + string(rune('a'+i)), Token: 5, Version: 10}
		b.seed(nil, nil)
		c := b.allocate(1, time.Minute)
		if i%3 == 0 {
			c.Token--
		}
		all, changes = append(all, b), append(changes, c)
	}
	for i, r := range store.Commit(testContext(t), epoch, changes) {
		want := nonce.FastDone
		if i%3 == 0 {
			want = nonce.FastFenced
		}
		all[i].is(r, want)
	}
}

func TestAChangeOfManyRowsIsOneCommit(t *testing.T) {
	const n = 3500 // more than Lua unpacks at once
	b := seeded(t, server.Client(t))
	c := b.allocate(n, time.Minute)
	for i := range int64(n) {
		id := "r" + string(rune('a'+i%26)) + time.Duration(i).String()
		c.Requests = append(c.Requests, nonce.Request{ID: id, Nonces: []int64{i}, Attempts: []int64{1}})
	}
	b.commit(c)
	again := b.allocate(1, time.Minute)
	for i := range 1500 {
		again.Requests = append(again.Requests, nonce.Request{ID: "new" + time.Duration(i).String()})
	}
	again.Requests = append(again.Requests, c.Requests[n-1])
	b.is(b.try(again), nonce.FastKnown)
	c = b.change()
	need := nonce.Need{Released: n + 1}
	for i := range int64(n) {
		c.Rows = append(c.Rows, nonce.RowChange{Nonce: i, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Released, Attempt: 1})
		need.Nonces = append(need.Nonces, i)
	}
	c.Held = 0
	b.commit(c)
	if s := b.read(need); s.Verdict != nonce.FastDone || len(s.Released) != n || len(s.Rows) != n {
		t.Errorf("verdict %d, %v: %d released, %d rows", s.Verdict, s.Err, len(s.Released), len(s.Rows))
	}
	events := b.events()
	if len(events) != 2 || len(events[0].Rows) != n || len(events[0].Requests) != n {
		t.Errorf("%d events", len(events))
	}
}
