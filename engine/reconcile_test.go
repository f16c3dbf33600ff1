package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// equalPair is a signer of which both sides have the same.
func equalPair(id int64, signer string) *pair {
	until := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	rows := []nonce.Row{
		{Nonce: 3, Status: nonce.Released, Attempt: 2, Reason: "r"},
		{Nonce: 5, Status: nonce.Held, Attempt: 1, HeldUntil: until},
	}
	p := &pair{
		snap:    nonce.Snapshot{Signer: signer, Exists: true, ID: id, Next: 6, Floor: 1, Version: 9, Now: until.Add(-time.Minute)},
		rows:    rows,
		version: 9, next: 6,
		redis: append([]nonce.Row{{Nonce: 4, Status: nonce.Consumed, Attempt: 1}}, rows...), // which leaves Redis by itself
		ids:   []nonce.Request{{ID: "q"}},
	}
	p.requests = []nonce.Remembered{{Request: nonce.Request{ID: "q"}, At: p.snap.Now}, {Request: nonce.Request{ID: "old"}, At: p.snap.Now.Add(-time.Hour)}}
	return p
}

func TestADifferenceIsFoundWhereverItIs(t *testing.T) {
	for what, change := range map[string]func(p *pair){
		"":          func(*pair) {},
		"next":      func(p *pair) { p.next = 7 },
		"nonce 3":   func(p *pair) { p.redis = p.redis[2:] },
		"nonce 4":   func(p *pair) { p.redis[0].Status = nonce.Released },
		"nonce 5":   func(p *pair) { p.rows = append([]nonce.Row{}, p.rows[0], p.rows[1]); p.rows[1].Attempt++ },
		"nonce 5 ":  func(p *pair) { p.rows = append([]nonce.Row{}, p.rows[0], p.rows[1]); p.rows[1].Holder++ },
		"nonce 5  ": func(p *pair) { p.rows = append([]nonce.Row{}, p.rows[0], p.rows[1]); p.rows[1].TxHash[0]++ },
		"nonce 3 ": func(p *pair) {
			p.rows = append([]nonce.Row{}, p.rows[0], p.rows[1])
			p.rows[0].Replaced = p.rows[0].Replaced.Append(nonce.TxHash{1})
		},
		"nonce 3  ":    func(p *pair) { p.rows = append([]nonce.Row{}, p.rows[0], p.rows[1]); p.rows[0].Reason = "" },
		"request id q": func(p *pair) { p.ids = nil },
		"signer":       func(p *pair) { p.verdict = nonce.FastLost; p.snap.Engine = nonce.Performance },
	} {
		w := at(nonce.StateDualWrite, nonce.StateDualWrite)
		w.copies["s"], w.copies["other"] = equalPair(1, "s"), equalPair(2, "other")
		change(w.copies["s"])
		m := manage(t, w)
		r, err := m.Reconcile(t.Context())
		switch {
		case err != nil:
			t.Errorf("%s: %v", what, err)
		case what == "":
			if r.Equal != 2 || r.Different+r.Behind+r.Busy != 0 {
				t.Errorf("of equal copies it says %+v", r)
			}
		case r.Different != 1 || r.Equal != 1 || len(r.Differences) != 1 || r.Differences[0].Signer != "s" || r.Differences[0].What != strings.TrimSpace(what):
			t.Errorf("%s: it says %+v", what, r)
		}
	}
}

// A node that is led to another Redis can say nothing of a signer, and must not say that
// it is missing.
func TestWhatAnotherRedisServesIsNoDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		p := equalPair(1, "s")
		p.snap.Engine = nonce.Performance
		p.verdict, p.err = nonce.FastLost, fmt.Errorf("%w: %w", nonce.ErrLost, redisstore.ErrIdentity)
		w.copies["s"] = p
		r, err := manage(t, w).Reconcile(t.Context())
		if !errors.Is(err, redisstore.ErrIdentity) || r.Different != 0 {
			t.Errorf("it says %+v and %v", r, err)
		}
	})
}

func TestADeadlineMayBeRounded(t *testing.T) {
	w := at(nonce.StateDualWrite, nonce.StateDualWrite)
	p := equalPair(1, "s")
	w.copies["s"] = p
	m := manage(t, w)
	for off, want := range map[time.Duration]int{time.Millisecond: 0, 2 * time.Millisecond: 1, -2 * time.Millisecond: 1} {
		p.redis[2].HeldUntil = p.rows[1].HeldUntil.Add(off)
		if r, err := m.Reconcile(t.Context()); r.Different != want || err != nil {
			t.Errorf("%v apart: %+v, %v", off, r, err)
		}
	}
}

func TestWhatIsWrittenToMeanwhileIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		p := equalPair(1, "s")
		p.snap.Engine = nonce.Performance
		p.next = 7 // and a version ahead: not flushed yet
		p.onLook = func(p *pair) {
			if p.version = 10; p.looked == 5 {
				p.snap.Version, p.snap.Next = 10, 7
			}
		}
		w.copies["s"] = p
		r, err := manage(t, w).Reconcile(t.Context())
		if r.Equal != 1 || r.Different+r.Busy != 0 || err != nil {
			t.Errorf("it says %+v, %v", r, err)
		}
	})
}

func TestASignerThatNeverRestsIsBusyAndNotDifferent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		p := equalPair(1, "s")
		p.next = 7
		p.onLook = func(p *pair) { p.version++ }
		w.copies["s"] = p
		behind := equalPair(2, "behind")
		behind.version = 8
		w.copies["behind"] = behind
		r, err := manage(t, w).Reconcile(t.Context())
		if r.Busy != 1 || r.Behind != 1 || r.Equal+r.Different != 0 || err != nil {
			t.Errorf("it says %+v, %v", r, err)
		}
	})
}

func TestARedisThatDoesNotAnswerIsNoDifference(t *testing.T) {
	for _, v := range []nonce.FastVerdict{nonce.FastNotSent, nonce.FastUnknown} {
		w := at(nonce.StatePerformance, nonce.StatePerformance)
		w.copies["s"] = equalPair(1, "s")
		w.copies["s"].verdict = v
		if r, err := manage(t, w).Reconcile(t.Context()); err == nil || !strings.Contains(err.Error(), "Redis did not answer") || r.Different != 0 {
			t.Errorf("%v: it says %+v, %v", v, r, err)
		}
	}
}

func TestASignerThatOnlyTheStoreHasIsMissingWhereRedisServesIt(t *testing.T) {
	w := at(nonce.StatePerformance, nonce.StatePerformance)
	p := equalPair(1, "s")
	p.snap.Engine, p.verdict = nonce.Performance, nonce.FastLost
	w.entered = []nonce.EnteredSigner{{ID: 1, Signer: "s"}}
	w.copies["s"] = p
	r, err := manage(t, w).Reconcile(t.Context())
	if r.Different != 1 || r.Differences[0].Redis != "missing" || err != nil {
		t.Errorf("it says %+v, %v", r, err)
	}
}
