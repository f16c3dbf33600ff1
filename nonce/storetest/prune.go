package storetest

import (
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var pruneRules = []rule{
	{"a pruning deletes the lowest old consumed rows, raises the version by one and leaves all else", func(f *fixture) {
		snap := f.consumed(signer, 5)
		want := snap
		want.Pruned, want.Version, want.Rows = 3, snap.Version+1, snap.Rows[3:]
		f.prunes(alice, snap, 3, nonce.Pruned{Applied: true, Below: 3, Rows: 3})
		f.unchanged(want)
		want.Pruned, want.Version, want.Rows = 5, snap.Version+2, nil
		f.prunes(alice, f.all(signer), 3, nonce.Pruned{Applied: true, Below: 5, Rows: 2})
		f.unchanged(want)
		f.prunes(alice, want, 3, nonce.Pruned{})
		f.unchanged(want)
	}},
	{"a row that is held stops a pruning", func(f *fixture) {
		f.stops(nonce.Held)
	}},
	{"a row that is released stops a pruning", func(f *fixture) {
		f.stops(nonce.Released)
	}},
	{"a row that changed a short time ago stops a pruning", func(f *fixture) {
		for gap := 20 * time.Millisecond; ; gap *= 2 {
			name := fmt.Sprint("after ", gap)
			f.applied(alice, on(f.take(alice, name)).hold(4, long))
			first := f.applied(alice, on(f.all(name)).end(0, 1, nonce.Consumed).end(1, 1, nonce.Consumed).end(3, 1, nonce.Consumed)).Now
			f.passes(first.Add(gap))
			last := f.applied(alice, on(f.all(name)).end(2, 1, nonce.Consumed)).Now
			age := f.now().Sub(first) - gap/2
			got := f.prune1(alice, f.all(name), age, 9)
			if !f.now().Add(-age).Before(last) {
				continue // so slow that the young one was old, perhaps
			}
			f.same("pruned", got, nonce.Pruned{Applied: true, Below: 2, Rows: 2})
			if rows := f.all(name).Rows; len(rows) != 2 {
				f.Errorf("got rows %+v", rows)
			}
			return
		}
	}},
	{"a pruning of a signer whose lowest row is not old changes nothing", func(f *fixture) {
		snap := f.consumed(signer, 3)
		if got := f.prune1(alice, snap, long, 9); got != (nonce.Pruned{}) {
			f.Errorf("got %+v", got)
		}
		f.unchanged(snap)
	}},
	{"a pruning under an older token, an older version or by another is refused and leaves no trace", func(f *fixture) {
		f.consumed(signer, 3)
		snap := f.take(alice, signer)
		before := f.all(signer)
		stale := func(change func(*nonce.PrunePiece)) nonce.PrunePiece {
			p := pieceOf(snap, 9)
			change(&p)
			return p
		}
		for what, try := range map[string]struct {
			h lease.Holder
			p nonce.PrunePiece
		}{
			"older token":                 {alice, stale(func(p *nonce.PrunePiece) { p.Token-- })},
			"token of the future":         {alice, stale(func(p *nonce.PrunePiece) { p.Token++ })},
			"older version":               {alice, stale(func(p *nonce.PrunePiece) { p.Version-- })},
			"version of the future":       {alice, stale(func(p *nonce.PrunePiece) { p.Version++ })},
			"another owner":               {bob, pieceOf(snap, 9)},
			"another incarnation":         {alice2, pieceOf(snap, 9)},
			"unknown signer":              {alice, stale(func(p *nonce.PrunePiece) { p.ID += 1000 })},
			"older version under a lock":  {lease.Holder{}, stale(func(p *nonce.PrunePiece) { p.Version-- })},
			"unknown signer under a lock": {lease.Holder{}, stale(func(p *nonce.PrunePiece) { p.ID += 1000 })},
		} {
			if got := f.pruning(try.h, short, try.p); got[0] != (nonce.Pruned{}) {
				f.Errorf("%s: got %+v", what, got)
			}
			f.unchanged(before)
		}
		f.release(alice, []nonce.ReleaseTerm{{ID: snap.ID, Token: snap.Lease.Token}})
		free := f.all(signer)
		f.prunes(alice, free, 9, nonce.Pruned{})
		f.unchanged(free)
	}},
	{"a pruning neither renews the lease nor minds that it has expired", func(f *fixture) {
		f.consumed(signer, 3)
		snap := f.try(alice, short, nonce.Need{Signer: signer})
		f.passes(snap.Lease.ExpiresAt)
		f.prunes(alice, snap, 9, nonce.Pruned{Applied: true, Below: 3, Rows: 3})
		if got := f.all(signer).Lease.ExpiresAt; !got.Equal(snap.Lease.ExpiresAt) {
			f.Errorf("expires at %v, want %v still", got, snap.Lease.ExpiresAt)
		}
	}},
	{"without a holder the version is the condition, and the owner's next commit is refused", func(f *fixture) {
		snap := f.consumed(signer, 3)
		f.prunes(lease.Holder{}, snap, 9, nonce.Pruned{Applied: true, Below: 3, Rows: 3})
		f.refused(alice, on(snap).hold(1, long))
		f.applied(alice, on(f.all(signer)).hold(1, long))
	}},
	{"a piece that is refused leaves the others of its pruning applied", func(f *fixture) {
		var pieces []nonce.PrunePiece
		for i := range 5 {
			pieces = append(pieces, pieceOf(f.consumed(fmt.Sprint("s", i), 2+i), 3))
		}
		pieces[0].Token--
		pieces[3].Version--
		slices.Reverse(pieces) // in no order of keys
		got := f.pruning(alice, short, pieces...)
		f.same("results", got, []nonce.Pruned{{Applied: true, Below: 3, Rows: 3}, {}, {Applied: true, Below: 3, Rows: 3}, {Applied: true, Below: 3, Rows: 3}, {}})
		for i, rows := range []int{2, 0, 1, 5, 3} {
			if got := f.all(fmt.Sprint("s", i)).Rows; len(got) != rows {
				f.Errorf("signer %d: got rows %+v, want %d", i, got, rows)
			}
		}
	}},
	{"a pruning of nothing is no error", func(f *fixture) {
		if got := f.pruning(alice, short); len(got) != 0 {
			f.Errorf("got %+v", got)
		}
	}},
	{"what the floor skipped does not stop a pruning, what it consumed goes too, a hold below it stays", func(f *fixture) {
		snap := f.filled(signer, 3, 1) // 0 and 2 held, 1 released
		f.applied(alice, on(snap).end(0, 1, nonce.Consumed).raise(10))
		f.applied(alice, on(f.all(signer)).hold(2, long))
		res := f.applied(alice, on(f.all(signer)).end(10, 1, nonce.Consumed))
		f.passes(res.Now.Add(short))
		f.prunes(alice, f.all(signer), 9, nonce.Pruned{Applied: true, Below: 2, Rows: 2})
		res = f.applied(alice, on(f.all(signer)).end(2, 1, nonce.Consumed))
		f.passes(res.Now.Add(short))
		f.prunes(alice, f.all(signer), 9, nonce.Pruned{Applied: true, Below: 11, Rows: 2})
		if got := f.all(signer); got.Next != 12 || got.Held != 1 || got.Floor != 10 || len(got.Rows) != 1 {
			f.Errorf("got %+v", got)
		}
	}},
	{"figures and lists go on above what was pruned, and whoever reads the signer learns where that is", func(f *fixture) {
		f.consumed(signer, 6)
		res := f.applied(alice, on(f.all(signer)).hold(4, long).asked("r"))
		f.passes(res.Now)
		f.applied(alice, on(f.all(signer)).release(7))
		before, err := f.Store.Summary(f.Context(), signer)
		f.ok(err)
		f.prunes(alice, f.all(signer), 4, nonce.Pruned{Applied: true, Below: 4, Rows: 4})
		after, err := f.Store.Summary(f.Context(), signer)
		f.ok(err)
		before.Version++
		before.Pruned = 4
		before.Now, after.Now = time.Time{}, time.Time{}
		f.same("summary", after, before)
		for _, want := range []struct {
			q      nonce.ListQuery
			nonces []int64
		}{
			{nonce.ListQuery{Limit: 9}, []int64{4, 5, 6, 7, 8, 9}},
			{nonce.ListQuery{Limit: 2, Status: nonce.Consumed}, []int64{4, 5}},
			{nonce.ListQuery{Limit: 9, From: 5, Status: nonce.Consumed}, []int64{5}},
			{nonce.ListQuery{Limit: 9, From: 2, Status: nonce.Held}, []int64{6, 8, 9}},
			{nonce.ListQuery{Limit: 9, Status: nonce.Released}, []int64{7}},
		} {
			want.q.Signer = signer
			if got := f.list(want.q); !slices.Equal(noncesOf(got.Rows), want.nonces) || got.NextFrom != -1 {
				f.Errorf("%+v: got %+v, want %v", want.q, got, want.nonces)
			}
		}
		page := f.list(nonce.ListQuery{Signer: signer, Limit: 2})
		if page = f.list(nonce.ListQuery{Signer: signer, Limit: 2, From: page.NextFrom}); !slices.Equal(noncesOf(page.Rows), []int64{6, 7}) {
			f.Errorf("second page: got %+v", page)
		}
		f.release(alice, []nonce.ReleaseTerm{{ID: f.all(signer).ID, Token: f.all(signer).Lease.Token}})
		if got := f.take(bob, signer); got.Pruned != 4 {
			f.Errorf("a take-over learns %d, want 4", got.Pruned)
		}
		f.locked(nonce.Need{Signer: signer, Nonces: []int64{0, 4}}, func(s nonce.Snapshot) *edit {
			if s.Pruned != 4 || len(s.Rows) != 1 {
				f.Errorf("under the lock: got %+v", s)
			}
			return check(s)
		})
	}},
	{"a request id whose nonces were pruned is known still", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(2, long).asked("r"))
		res := f.applied(alice, on(f.all(signer)).end(0, 1, nonce.Consumed).end(1, 1, nonce.Consumed))
		f.passes(res.Now.Add(short))
		f.prunes(alice, f.all(signer), 9, nonce.Pruned{Applied: true, Below: 2, Rows: 2})
		got := f.load(nonce.Need{Signer: signer, RequestIDs: []string{"r"}})
		if len(got.Requests) != 1 || len(got.Rows) != 0 {
			f.Errorf("got %+v", got)
		}
		if res := f.commit(alice, on(got).hold(1, long).asked("r")); res.Applied[0] {
			f.Error("it was given another nonce")
		}
	}},
	{"a walk finds the signers whose lowest row is old and consumed, in pages, and ends", func(f *fixture) {
		for i := range 9 {
			switch name := fmt.Sprint("s", i); i % 3 {
			case 0:
				f.consumed(name, 1+i)
			case 1:
				f.applied(alice, on(f.take(alice, name)).hold(1, long).hold(1, long))
				f.applied(alice, on(f.all(name)).end(1, 1, nonce.Consumed))
			default:
				f.take(alice, name)
			}
		}
		f.passes(f.now().Add(short))
		f.take(bob, "s9")
		for _, size := range [][2]int{{1, 1}, {2, 1}, {4, 2}, {9, 1}, {10, 9}, {99, 3}, {99, 99}} {
			got := map[string]int{}
			for q := (nonce.PruneQuery{Age: short, Signers: size[0], Found: size[1], Rows: 5}); ; {
				page, err := f.Store.Prunable(f.Context(), q)
				f.ok(err)
				if len(page.Found) > size[1] || page.Now.IsZero() {
					f.Fatalf("%+v: got %+v", q, page)
				}
				for _, found := range page.Found {
					snap := f.load(nonce.Need{Signer: found.Signer})
					if found.ID != snap.ID || found.Version != snap.Version || found.Lease.Holder != alice || found.Lease.Token != snap.Lease.Token || !found.Lease.Held(page.Now) {
						f.Errorf("got %+v, it is %+v", found, snap)
					}
					got[found.Signer] += found.Rows
				}
				if page.After != 0 && page.After <= q.After {
					f.Fatalf("%+v leads to %d", q, page.After)
				}
				if q.After = page.After; q.After == 0 {
					break
				}
			}
			f.same(fmt.Sprint("walk of ", size), got, map[string]int{"s0": 1, "s3": 4, "s6": 5})
		}
		page, err := f.Store.Prunable(f.Context(), nonce.PruneQuery{Age: long, Signers: 99, Found: 99, Rows: 5})
		if err != nil || len(page.Found) != 0 || page.After != 0 {
			f.Errorf("young ones: got %+v, %v", page, err)
		}
	}},
	{"a walk begins above what was pruned", func(f *fixture) {
		f.prunes(alice, f.consumed(signer, 5), 3, nonce.Pruned{Applied: true, Below: 3, Rows: 3})
		page, err := f.Store.Prunable(f.Context(), nonce.PruneQuery{Age: short, Signers: 9, Found: 9, Rows: 9})
		if err != nil || len(page.Found) != 1 || page.Found[0].Rows != 2 {
			f.Errorf("got %+v, %v, want 2 rows", page, err)
		}
	}},
}

// consumed has alice hold n nonces of name and consume them, a short time ago.
func (f *fixture) consumed(name string, n int) nonce.Snapshot {
	f.Helper()
	e := on(f.filled(name, n))
	for i := range int64(n) {
		e.end(i, 1, nonce.Consumed)
	}
	f.passes(f.applied(alice, e).Now.Add(short))
	return f.all(name)
}

func pieceOf(s nonce.Snapshot, rows int) nonce.PrunePiece {
	return nonce.PrunePiece{ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, Version: s.Version, Rows: rows}
}

func (f *fixture) pruning(h lease.Holder, age time.Duration, pieces ...nonce.PrunePiece) []nonce.Pruned {
	f.Helper()
	got, err := f.Store.Prune(f.Context(), h, nonce.Pruning{Age: age, Epoch: f.Store.Epoch(), Pieces: pieces})
	f.ok(err)
	if len(got) != len(pieces) {
		f.Fatalf("got %d results for %d pieces", len(got), len(pieces))
	}
	return got
}

func (f *fixture) prune1(h lease.Holder, snap nonce.Snapshot, age time.Duration, rows int) nonce.Pruned {
	f.Helper()
	return f.pruning(h, age, pieceOf(snap, rows))[0]
}

// prunes prunes what is older than short and compares the result.
func (f *fixture) prunes(h lease.Holder, snap nonce.Snapshot, rows int, want nonce.Pruned) {
	f.Helper()
	if got := f.prune1(h, snap, short, rows); got != want {
		f.Fatalf("pruning %d rows for %v: got %+v, want %+v", rows, h, got, want)
	}
}

// stops prunes a signer whose nonces 0, 1 and 3 are consumed and whose nonce 2
// is of the status, and wants the pruning to end there, each time.
func (f *fixture) stops(status nonce.Status) {
	f.Helper()
	f.applied(alice, on(f.take(alice, signer)).hold(4, long))
	f.applied(alice, on(f.all(signer)).end(0, 1, nonce.Consumed).end(1, 1, nonce.Consumed).end(3, 1, nonce.Consumed))
	if status == nonce.Released {
		f.applied(alice, on(f.all(signer)).release(2))
	}
	f.passes(f.now().Add(short))
	snap := f.all(signer)
	f.prunes(alice, snap, 9, nonce.Pruned{Applied: true, Below: 2, Rows: 2})
	left := f.all(signer)
	if rows := inOrder(left.Rows); len(rows) != 2 || rows[0].Nonce != 2 || rows[0].Status != status || left.Pruned != 2 {
		f.Fatalf("got %+v", left)
	}
	f.prunes(alice, left, 9, nonce.Pruned{})
	f.unchanged(left)
}
