//go:build unix

package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"noncegate/nonce"
)

// pieces is a copy of four rows and a request id in three pieces.
func pieces(b *bench) []nonce.SeedPiece {
	row := func(n int64, s nonce.Status) nonce.Row {
		r := nonce.Row{Nonce: n, Status: s, Attempt: 2, Token: 3}
		if s == nonce.Held {
			r.HeldUntil = epoch.Add(time.Minute)
		}
		return r
	}
	id := []nonce.Remembered{{Request: nonce.Request{ID: "id", Hash: [16]byte{1}, Nonces: []int64{1}, Attempts: []int64{2}}, At: epoch}}
	return []nonce.SeedPiece{
		{FastBelief: b.belief, Rows: []nonce.Row{row(0, nonce.Released), row(1, nonce.Held)}},
		{Nth: 1, FastBelief: b.belief, Rows: []nonce.Row{row(2, nonce.Held), row(3, nonce.Consumed)}, Requests: id},
		{Nth: 2, Last: true, FastBelief: b.belief, Rows: []nonce.Row{row(8, nonce.Released)}, Next: 9, Floor: 0, Held: 2},
	}
}

func (b *bench) piece(p nonce.SeedPiece, want nonce.FastVerdict) {
	b.t.Helper()
	_, res := b.store.Seed(testContext(b.t), p)
	b.is(res, want)
}

func TestACopyIsFoundOnlyOnceItsLastPieceIsThere(t *testing.T) {
	b := seeded(t, server.Client(t), nonce.Row{Nonce: 77, Status: nonce.Released, Attempt: 1})
	b.belief.Version++
	for i, p := range pieces(b) {
		if s := b.read(nonce.Need{}); s.Verdict != nonce.FastLost {
			t.Fatalf("before piece %d it reads %+v", i, s)
		}
		b.piece(p, nonce.FastDone)
	}
	s := b.read(nonce.Need{Released: 9, Nonces: []int64{77, 3}, RequestIDs: []string{"id", "other"}})
	same(t, s, nonce.FastSnapshot{Snapshot: nonce.Snapshot{
		Signer: signer, Exists: true, ID: 7, Next: 9, Version: 11, Held: 2, Now: epoch, Released: []int64{0, 8},
		Rows: []nonce.Row{
			{Nonce: 0, Status: nonce.Released, Attempt: 2, Token: 3}, {Nonce: 8, Status: nonce.Released, Attempt: 2, Token: 3},
			{Nonce: 1, Status: nonce.Held, Attempt: 2, Token: 3, HeldUntil: epoch.Add(time.Minute)},
		},
		Requests: []nonce.Request{{ID: "id", Hash: [16]byte{1}, Nonces: []int64{1}, Attempts: []int64{2}}},
	}})
}

func TestPiecesOfTwoCopiesDoNotMix(t *testing.T) {
	b := seeded(t, server.Client(t))
	old := pieces(b)
	b.belief.Version++
	young := pieces(b)
	b.piece(old[0], nonce.FastDone)
	b.piece(young[0], nonce.FastDone)
	b.piece(old[1], nonce.FastLost)
	b.piece(young[1], nonce.FastDone)
	b.piece(old[2], nonce.FastLost)
	b.piece(young[2], nonce.FastDone)
	b.piece(young[1], nonce.FastLost) // it is over
	late := old[0]
	b.piece(late, nonce.FastLost) // it is of a version before that which is there
	if s := b.read(nonce.Need{}); s.Verdict != nonce.FastDone || s.Held != 2 {
		t.Errorf("it reads %+v", s)
	}
}

func TestABeginningThatComesLateEndsTheCopyOfItsVersionThatIsUnderWay(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.belief.Version++
	p := pieces(b)
	p[0].Rows, p[1].Rows, p[2].Rows = p[0].Rows[:1], p[2].Rows, append(p[0].Rows[1:], p[1].Rows[0]) // all holds come last
	b.piece(p[0], nonce.FastDone)
	b.piece(p[1], nonce.FastDone)
	b.piece(p[0], nonce.FastDone) // of a try that was given up: what came before it is gone
	b.piece(p[2], nonce.FastLost)
	if s := b.read(nonce.Need{}); s.Verdict != nonce.FastLost {
		t.Errorf("it reads %+v", s)
	}
	b.piece(p[1], nonce.FastDone)
	b.piece(p[2], nonce.FastDone)
}

func TestACopyIsTakenOverOnlyOnceItServes(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.belief.Version++
	for _, p := range pieces(b) {
		b.piece(p, nonce.FastDone)
	}
	next := b.belief
	next.Token++
	if s := b.takeOver(next.Token, nonce.Need{}); s.Verdict != nonce.FastLost {
		t.Errorf("what never served is taken over: %+v", s)
	}
	if s := b.store.Read(testContext(t), b.now, []nonce.FastRead{{FastBelief: next, Serve: true}})[0]; s.Verdict != nonce.FastLost {
		t.Errorf("another token makes it serve: %+v", s)
	}
	s := b.store.Read(testContext(t), b.now, []nonce.FastRead{{FastBelief: b.belief, Serve: true}})[0]
	b.is(nonce.FastResult{Verdict: s.Verdict, Err: s.Err}, nonce.FastDone)
	if s := b.takeOver(next.Token, nonce.Need{}); s.Verdict != nonce.FastDone || s.Held != 2 {
		t.Errorf("it is taken over: %+v", s)
	}
	rows, res := b.store.Rows(testContext(t), signer, b.belief.Identity, 0, 10)
	if b.is(res, nonce.FastDone); len(rows) != 4 {
		t.Errorf("got rows %+v", rows)
	}
}

func TestACopyMeetsAHigherToken(t *testing.T) {
	b := seeded(t, server.Client(t))
	mine := pieces(b)
	b.piece(mine[0], nonce.FastDone)
	theirs := pieces(b)
	for i := range theirs {
		theirs[i].Token++
	}
	b.piece(theirs[0], nonce.FastDone)
	for _, p := range mine {
		b.piece(p, nonce.FastFenced)
	}
	b.piece(theirs[1], nonce.FastDone)
	b.piece(theirs[2], nonce.FastDone)
	for _, p := range mine {
		b.piece(p, nonce.FastFenced)
	}
}

func TestACopyWithoutAllItsHoldsIsNotFound(t *testing.T) {
	b := seeded(t, server.Client(t))
	p := pieces(b)
	b.piece(p[0], nonce.FastDone)
	b.piece(p[2], nonce.FastLost)
	if s := b.read(nonce.Need{}); s.Verdict != nonce.FastLost {
		t.Errorf("it reads %+v", s)
	}
	b.piece(p[1], nonce.FastDone)
	b.piece(p[2], nonce.FastDone)
}

func TestACopyOfManyRowsInOnePiece(t *testing.T) {
	b := seeded(t, server.Client(t))
	var rows []nonce.Row
	var ids []nonce.Remembered
	for n := range int64(3500) {
		rows = append(rows, nonce.Row{Nonce: n, Status: nonce.Status(1 + n%2), Attempt: 1, HeldUntil: epoch})
		ids = append(ids, nonce.Remembered{Request: nonce.Request{ID: strconv.FormatInt(n, 10)}, At: epoch})
	}
	b.seed(rows, ids)
	if s := b.read(nonce.Need{Released: 3500, Due: 3500}); len(s.Released) != 1750 || len(s.Due) != 1750 {
		t.Errorf("%d released and %d due, %v", len(s.Released), len(s.Due), s.Err)
	}
}

func TestARequestIDIsKeptForWhatIsLeftOfItsRetention(t *testing.T) {
	for name, tc := range map[string]struct {
		age  time.Duration
		now  time.Time
		want time.Duration // of one hour; at the most
	}{
		"new":             {0, epoch, time.Hour},
		"old":             {50 * time.Minute, epoch, 10 * time.Minute},
		"from the future": {-time.Hour, epoch, time.Hour},
		"without a clock": {50 * time.Minute, time.Time{}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := seeded(t, server.Client(t))
			b.now = tc.now
			b.seed(nil, []nonce.Remembered{{Request: nonce.Request{ID: "id"}, At: epoch.Add(-tc.age)}})
			got, err := b.client.PTTL(testContext(t), b.key("q:")+" 0 id").Result()
			if err != nil || got > tc.want || got < tc.want-time.Minute {
				t.Errorf("it is kept for %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestForgettingLeavesAHigherTokenAlone(t *testing.T) {
	b := seeded(t, server.Client(t))
	lower, ctx := b.belief, testContext(t)
	lower.Token--
	if err := b.store.Forget(ctx, []nonce.FastBelief{lower}); err != nil {
		t.Fatal(err)
	}
	b.commit(b.allocate(1, time.Minute))
	b.commit(b.mark(0, nonce.Released))
	if err := b.store.Forget(ctx, []nonce.FastBelief{b.belief}); err != nil {
		t.Fatal(err)
	}
	b.is(b.try(b.allocate(1, time.Minute)), nonce.FastLost)
	if left, err := b.client.Exists(ctx, b.key("n:"), b.key("h:"), b.key("r:")).Result(); left != 0 || err != nil {
		t.Errorf("%d keys are left, %v", left, err)
	}
}

func TestARequestIDOfALostEpochIsNotKnown(t *testing.T) {
	b := seeded(t, server.Client(t))
	c := b.allocate(1, time.Minute)
	c.Requests = []nonce.Request{{ID: "id", Nonces: []int64{0}, Attempts: []int64{1}}}
	b.commit(c)
	b.belief.Version = nonce.NextEpoch(b.belief.Version)
	b.seed(nil, nil)
	if s := b.read(nonce.Need{RequestIDs: []string{"id"}}); len(s.Requests) != 0 {
		t.Errorf("it reads %+v", s.Requests)
	}
	c = b.allocate(1, time.Minute)
	c.Requests = []nonce.Request{{ID: "id", Nonces: []int64{0}, Attempts: []int64{1 << 20}}}
	b.commit(c)
}
