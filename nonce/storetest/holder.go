package storetest

import (
	"fmt"
	"math"

	"noncegate/nonce"
)

// Principals of the tests: the last one is negative where it is taken for a signed
// number.
const (
	ann nonce.Principal = 7
	ben nonce.Principal = math.MaxUint64 - 1
)

// by makes the rows that were handed out since the last call of asked, or since the
// beginning, a principal's.
func (e *edit) by(p nonce.Principal) *edit {
	for i := e.given; i < len(e.Rows); i++ {
		if e.Rows[i].Status == nonce.Held {
			e.Rows[i].Holder = p
		}
	}
	return e
}

// of makes the last row say whose it is, or was.
func (e *edit) of(p nonce.Principal) *edit {
	e.Rows[len(e.Rows)-1].Holder = p
	return e
}

// holders are the principals of a signer's rows, in order of nonce.
func holders(s nonce.Snapshot) (out []nonce.Principal) {
	for _, row := range inOrder(s.Rows) {
		out = append(out, row.Holder)
	}
	return out
}

func (f *fixture) heldBy(what, name string, want ...nonce.Principal) {
	f.Helper()
	f.same(what, holders(f.all(name)), want)
}

var holderRules = []rule{
	{"a hold is whose it is, through its end and until somebody else is handed it", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(3, long).by(ann))
		f.heldBy("handed out", signer, ann, ann, ann)
		f.applied(alice, on(f.all(signer)).end(0, 1, nonce.Released).of(ann).end(1, 1, nonce.Consumed).of(ann))
		f.heldBy("ended", signer, ann, ann, ann)
		f.applied(alice, on(f.all(signer)).again(0, 1, long).of(ben))
		f.heldBy("handed out again", signer, ben, ann, ann)
		f.applied(alice, on(f.all(signer)).end(0, 2, nonce.Released).of(ben).end(2, 1, nonce.Released).of(ann))
		f.applied(alice, on(f.all(signer)).again(0, 2, long))
		f.heldBy("to nobody in particular", signer, 0, ann, ann)
		f.applied(alice, on(f.all(signer)).raise(3))
		f.heldBy("below the floor", signer, 0, ann, ann)
	}},
	{"every way of reading a row says whose it is", func(f *fixture) {
		res := f.applied(alice, on(f.take(alice, signer)).hold(2, short).hold(1, long).by(ben).asked("r"))
		f.applied(alice, on(f.all(signer)).end(2, 1, nonce.Released).of(ben))
		f.passes(res.Now.Add(short))
		for what, need := range map[string]nonce.Need{
			"released": {Released: 5}, "overdue": {Due: 5}, "by number": {Nonces: []int64{1, 2}}, "by request id": {RequestIDs: []string{"r"}},
		} {
			need.Signer = signer
			snap := f.load(need)
			for _, row := range append(snap.Due, snap.Rows...) {
				if row.Holder != ben {
					f.Errorf("%s: %+v is not %d's", what, row, ben)
				}
			}
			if len(snap.Rows) == 0 {
				f.Errorf("%s: no row", what)
			}
		}
		for _, row := range f.list(nonce.ListQuery{Signer: signer, Limit: 9}).Rows {
			if row.Holder != ben {
				f.Errorf("listed: %+v is not %d's", row, ben)
			}
		}
	}},
	{"one commit has holds of many principals, also of one signer", func(f *fixture) {
		for _, with := range []struct {
			name  string
			count int
			id    string
			whose func(signer, n int) nonce.Principal
		}{
			{"one nonce each", 1, "", func(s, _ int) nonce.Principal { return nonce.Principal(s) }},
			{"several nonces each", 3, "", func(s, _ int) nonce.Principal { return nonce.Principal(s) }},
			{"one nonce each, request ids", 1, "r", func(s, _ int) nonce.Principal { return nonce.Principal(s) }},
			{"several nonces each, request ids", 3, "r", func(s, _ int) nonce.Principal { return ben - nonce.Principal(s) }},
			{"several principals each", 3, "r", func(_, n int) nonce.Principal { return nonce.Principal(n) }},
			{"nobody's", 2, "r", func(int, int) nonce.Principal { return 0 }},
		} {
			var edits []*edit
			for s := range 3 {
				e := on(f.take(alice, fmt.Sprint(with.name, s)))
				for n := range with.count {
					e.hold(1, long).of(with.whose(s, n))
				}
				if with.id != "" {
					e.asked(with.id)
				}
				edits = append(edits, e)
			}
			for _, applied := range f.commit(alice, edits...).Applied {
				if !applied {
					f.Fatalf("%s: not applied", with.name)
				}
			}
			for s, e := range edits {
				var want []nonce.Principal
				for n := range with.count {
					want = append(want, with.whose(s, n))
				}
				f.heldBy(with.name, e.Signer, want...)
			}
		}
	}},
	{"locked hands out to a principal", func(f *fixture) {
		f.locked(nonce.Need{Signer: signer}, func(s nonce.Snapshot) *edit { return on(s).hold(2, long).by(ann) })
		f.locked(nonce.Need{Signer: signer, Nonces: []int64{0}}, func(s nonce.Snapshot) *edit {
			if s.Rows[0].Holder != ann {
				f.Errorf("plan sees %+v", s.Rows)
			}
			return on(s).end(0, 1, nonce.Released).of(ann)
		})
		f.locked(nonce.Need{Signer: signer}, func(s nonce.Snapshot) *edit { return on(s).again(0, 1, long).of(ben).hold(1, long) })
		f.heldBy("by locked", signer, ben, ann, 0)
	}},
}

// flushedHolderRules: what Redis handed out to whom is what the store has.
var flushedHolderRules = []engineRule{
	{"an event says whose its rows are, and what is consumed stays whose it was", func(f *engines) {
		f.up()
		f.applied(alice, on(f.take(alice, signer)).hold(3, long).by(ann))
		f.applied(alice, on(f.all(signer)).end(1, 1, nonce.Released).of(ann))
		f.enter(alice, moveOf(f.all(signer)), long, long)
		e := f.after(f.all(signer)).hold(2, long).end(0, 1, nonce.Consumed).again(1, 2)
		for i, p := range []nonce.Principal{ben, 0, ann, ben} {
			e.Rows[i].Holder = p
		}
		f.follows(e)
		f.heldBy("an event", signer, ann, ben, ann, ben, 0)
		e = f.after(f.all(signer)).merged(3).end(1, 2, nonce.Released).again(2, 2).end(3, 1, nonce.Consumed).
			row(nonce.FlushRow{Nonce: 5, Fresh: true, Status: nonce.Released, Attempt: 1, Holder: ann}).
			row(nonce.FlushRow{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{0: 0xab}})
		e.Rows[0].Holder, e.Rows[2].Holder, e.Next = ben, ben, 6
		f.follows(e)
		f.heldBy("events merged into one", signer, ann, ben, 0, ben, 0, ann)
	}},
	{"a copy says whose its rows are, and a loss leaves them whose they were", func(f *engines) {
		f.up()
		f.applied(alice, on(f.take(alice, signer)).hold(2, long).by(ann))
		f.applied(alice, on(f.all(signer)).end(1, 1, nonce.Released).of(ann).hold(1, long).of(ben))
		page, err := f.Copy(f.Context(), f.all(signer).ID, 0, "", 10)
		f.ok(err)
		f.same("copied", holders(nonce.Snapshot{Rows: page.Rows}), []nonce.Principal{ann, ann, ben})
		snap := f.all(signer)
		f.enter(alice, nonce.MoveTerm{ID: snap.ID, Token: snap.Lease.Token, Version: snap.Version, Identity: redis1, Ceiling: 4}, long, long)
		if lost := f.lose(alice, short, f.all(signer)); !lost[0] {
			f.Fatal("not lost")
		}
		f.heldBy("lost", signer, ann, ann, ben, 0)
	}},
}
