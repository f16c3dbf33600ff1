package nonce

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"noncegate/lease"
)

func TestWhatIsRememberedOfASignerIsBounded(t *testing.T) {
	st := &state{signer: "s", releasedMore: false}
	now := time.Unix(1_800_000_000, 0)
	const n = 3 * maxReleased
	for _, to := range []Status{Held, Released} {
		d := newDraft(st, &Rules{DefaultHold: time.Minute})
		op := &Op{Kind: KindAllocate, Count: n}
		if to == Held {
			if err := d.apply(op); err != nil || op.Err != nil {
				t.Fatal(err, op.Err)
			}
		} else {
			for i := range int64(n) {
				d.end(Row{Nonce: i, Status: Held, Attempt: 1}, RowChange{Nonce: i, Attempt: 1, Status: Released})
			}
		}
		d.finish(0)
		st.committed(d, now)
	}
	if len(st.heldRows) > maxHeldRows {
		t.Errorf("remembers %d HELD rows, want at most %d", len(st.heldRows), maxHeldRows)
	}
	if len(st.released) != maxReleased || cap(st.released) > 2*maxReleased || !st.releasedMore {
		t.Errorf("remembers %d RELEASED rows in room for %d, more: %v, want %d and more", len(st.released), cap(st.released), st.releasedMore, maxReleased)
	}
	if st.released[0].nonce != 0 || st.released[maxReleased-1].nonce != maxReleased-1 {
		t.Error("they are not the lowest")
	}
}

func TestAReleasedNonceBeyondWhatIsRememberedIsLeftToTheStore(t *testing.T) {
	st := &state{next: 100, released: []freeNonce{{nonce: 3, attempt: 1}, {nonce: 7, attempt: 1}}, releasedMore: true}
	d := newDraft(st, &Rules{DefaultHold: time.Minute})
	for _, n := range []int64{9, 5} {
		d.end(Row{Nonce: n, Status: Held, Attempt: 1}, RowChange{Nonce: n, Attempt: 1, Status: Released})
	}
	if got, want := fmt.Sprint(d.released), "[{3 1 0 false} {5 1 0 false} {7 1 0 false}]"; got != want {
		t.Errorf("got %s, want %s: 8 may be released in the store, so 9 is not known to be next", got, want)
	}
	if got, want := fmt.Sprint(st.released), "[{3 1 0 false} {7 1 0 false}]"; got != want {
		t.Errorf("before the commit memory became %s", got)
	}
	if err := d.apply(&Op{Kind: KindAllocate, Count: 4}); err != errDefer {
		t.Errorf("more than is remembered: got %v, want to wait for a read", err)
	}
}

func TestMemoryFollowsOnlyAfterTheCommit(t *testing.T) {
	st := &state{
		next: 10, held: 2, released: []freeNonce{{nonce: 1, attempt: 1}, {nonce: 2, attempt: 1}, {nonce: 3, attempt: 1}},
		heldRows: holds{{nonce: 5, attempt: 1}, {nonce: 6, attempt: 1}},
	}
	before := fmt.Sprintf("%+v", *st)
	d := newDraft(st, &Rules{DefaultHold: time.Minute})
	for _, op := range []*Op{
		{Kind: KindMarkUsed, Nonce: 2, Attempt: 1},
		{Kind: KindMarkRecyclable, Nonce: 5, Attempt: 1},
		{Kind: KindAllocate, Count: 1},
		{Kind: KindMarkUsed, Nonce: 6, Attempt: 1},
		{Kind: KindAllocate, Count: 1},
	} {
		if err := d.apply(op); err != nil || op.Err != nil {
			t.Fatal(err, op.Err)
		}
	}
	if got := fmt.Sprintf("%+v", *st); got != before {
		t.Errorf("memory became %s, was %s", got, before)
	}
}

// look is one reading of the store's clock, in seconds since a start.
type look struct {
	started, ended, store float64
	jump                  bool
}

func TestAClockJumpIsAReadingThatNoAnswerTimeExplains(t *testing.T) {
	for name, looks := range map[string][]look{
		"steady":                {{0, 0.1, 100, false}, {5, 5.1, 105, false}, {9000, 9000.1, 9100, false}},
		"withinTolerance":       {{0, 0, 100, false}, {5, 5, 105.9, false}, {6, 6, 106, false}},
		"forward":               {{0, 0, 100, false}, {5, 5, 106.2, true}, {6, 6, 107.2, false}},
		"back":                  {{0, 0, 100, false}, {5, 5, 103.8, true}, {6, 6, 104.8, false}},
		"slowFirstAnswer":       {{0, 4, 100, false}, {5, 5, 105, false}},
		"slowFirstAnswerEnd":    {{0, 4, 104, false}, {5, 5, 105, false}},
		"slowSecondAnswer":      {{0, 0, 100, false}, {1, 5, 101, false}, {6, 6, 106, false}},
		"slowSecondAnswerEnd":   {{0, 0, 100, false}, {1, 5, 105, false}, {6, 6, 106, false}},
		"forwardBehindASlowOne": {{0, 2, 100, false}, {5, 5, 107, true}},
		"answersOutOfOrder":     {{0, 0, 100, false}, {2, 2.5, 102, false}, {1, 2, 101, false}, {3, 3, 103, false}},
	} {
		t.Run(name, func(t *testing.T) {
			jumped := false
			c := &storeClock{longestHold: time.Minute, jumped: func(time.Duration) { jumped = true }}
			base := time.Now()
			at := func(s float64) time.Time { return base.Add(time.Duration(s * float64(time.Second))) }
			for i, l := range looks {
				jumped = false
				if c.observe(at(l.started), at(l.ended), at(l.store)); jumped != l.jump {
					t.Errorf("look %d: got a jump: %v, want %v", i, jumped, l.jump)
				}
			}
			c.observe(at(0), at(0), time.Time{}) // an answer without a time says nothing
		})
	}
}

func TestWordsOfKindsStatesAndEvents(t *testing.T) {
	for got, want := range map[string]string{
		Held.String() + Released.String() + Consumed.String() + Status(9).String():                                             "HELDRELEASEDCONSUMEDStatus(9)",
		KindAllocate.String() + " " + KindMarkUsed.String() + " " + KindMarkRecyclable.String() + " " + kindSweep.String():     "allocate mark_used mark_recyclable sweep",
		KindSetFloor.String() + " " + KindStatus.String() + " " + KindList.String() + " " + Kind(99).String():                  "floor status list unknown",
		EventAllocated.String() + " " + EventUsed.String() + " " + EventReleased.String() + " " + EventType(99).String():       "allocated used released unknown event",
		EventExpired.String() + " " + EventFloor.String() + " " + NotSent.String() + " " + Aborted.String() + Unknown.String(): "expired floor not sent abortedunknown",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWhatEndsBelowTheFloorSaysSoInItsEvent(t *testing.T) {
	st := &state{signer: "s", next: 6, floor: 3, held: 2, due: []Row{
		{Nonce: 2, Status: Held, Attempt: 1}, {Nonce: 4, Status: Held, Attempt: 1},
	}}
	sweep := &Op{Kind: kindSweep}
	newDraft(st, &Rules{}).expire(sweep)
	st.due, st.details = nil, map[int64]Row{2: {Nonce: 2, Status: Held, Attempt: 1}}
	release := &Op{Kind: KindMarkRecyclable, Nonce: 2, Attempt: 1, Reason: "mine"}
	if err := newDraft(st, &Rules{}).apply(release); err != nil || release.Err != nil {
		t.Fatal(err, release.Err)
	}
	var got []string
	for _, e := range append(sweep.events(nil, 7, time.Time{}), release.events(nil, 8, time.Time{})...) {
		got = append(got, fmt.Sprint(e.Type, " ", e.Nonce, " ", e.Reason))
	}
	if want := "[expired 2 below_floor expired 4  released 2 below_floor]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestAStoreWentBackWhenAnyOfVersionNextAndTokenIsLess(t *testing.T) {
	seen := &state{id: 1, version: 5, next: 7}
	now := Snapshot{Exists: true, Version: 5, Next: 7, Lease: lease.Grant{Token: 3}}
	if seen.wentBack(&now, 3) {
		t.Error("a store that shows what was seen went back")
	}
	for name, less := range map[string]func(*Snapshot){
		"row":     func(s *Snapshot) { s.Exists = false },
		"version": func(s *Snapshot) { s.Version-- },
		"next":    func(s *Snapshot) { s.Next-- },
		"token":   func(s *Snapshot) { s.Lease.Token-- },
	} {
		s := now
		if less(&s); !seen.wentBack(&s, 3) {
			t.Errorf("less of %s went unnoticed", name)
		}
	}
}

func TestARepeatOfAnOverdueHoldIsAConflictAlsoWhileSweepsArePaused(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	op := &Op{Kind: KindAllocate, Count: 1, RequestID: "a"}
	req := Request{ID: "a", Hash: op.RequestHash(), Nonces: []int64{0}, Attempts: []int64{1}}
	for until, ended := range map[time.Time]bool{now: true, now.Add(time.Second): false} {
		st := &state{
			signer: "s", next: 1, held: 1, detailsAt: now, requests: map[string]Request{"a": req},
			details: map[int64]Row{0: {Nonce: 0, Status: Held, Attempt: 1, HeldUntil: until}},
		}
		if err := newDraft(st, &Rules{DefaultHold: time.Minute}).apply(op); err != nil {
			t.Fatal(err)
		}
		if _, conflict := errors.AsType[*ConflictError](op.Err); conflict != ended {
			t.Errorf("deadline %v after now: got %v", until.Sub(now), op.Err)
		}
	}
}
