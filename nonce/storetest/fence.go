package storetest

import (
	"noncegate/lease"
	"noncegate/nonce"
)

var fenceRules = []rule{
	{"a commit under an older token is refused and leaves no trace", func(f *fixture) {
		old := f.filled(signer, 2, 1)
		f.take(alice, signer)
		f.refused(alice, on(old).hold(1, long).again(1, 1, long).asked("r"))
	}},
	{"a commit under a token of the future is refused", func(f *fixture) {
		e := on(f.filled(signer, 2)).hold(1, long)
		e.Token++
		f.refused(alice, e)
	}},
	{"a commit under an older version is refused and leaves no trace", func(f *fixture) {
		old := f.filled(signer, 2)
		f.applied(alice, on(old).hold(1, long))
		f.refused(alice, on(old).release(0).raise(2))
	}},
	{"a commit by another owner is refused", func(f *fixture) {
		f.refused(bob, on(f.filled(signer, 2)).hold(1, long))
	}},
	{"a commit by another incarnation of the owner is refused", func(f *fixture) {
		f.refused(alice2, on(f.filled(signer, 2)).hold(1, long))
		snap := f.take(alice2, other)
		if res := f.commit(alice, on(snap).hold(1, long)); res.Applied[0] {
			f.Error("a lower incarnation committed")
		}
	}},
	{"a commit of a signer that nobody owns is refused", func(f *fixture) {
		snap := f.filled(signer, 2)
		f.release(alice, []nonce.ReleaseTerm{{ID: snap.ID, Token: snap.Lease.Token}})
		f.refused(alice, on(f.all(signer)).hold(1, long))
	}},
	{"an expired lease that nobody took still commits, because times decide nothing", func(f *fixture) {
		snap := f.try(alice, short, nonce.Need{Signer: signer})
		f.passes(snap.Lease.ExpiresAt)
		f.applied(alice, on(snap).hold(1, long))
	}},
	{"a commit renews the lease, a refused one and a check do not", func(f *fixture) {
		snap := f.try(alice, short, nonce.Need{Signer: signer})
		stale, check := on(snap).hold(1, long), on(snap)
		stale.Version++
		check.Check = true
		f.commit(alice, stale)
		f.commit(alice, check)
		if got := f.all(signer).Lease.ExpiresAt; !got.Equal(snap.Lease.ExpiresAt) {
			f.Fatalf("expires at %v, want %v still", got, snap.Lease.ExpiresAt)
		}
		res := f.applied(alice, on(snap).hold(1, long))
		if got := f.all(signer).Lease.ExpiresAt; !exact(got).Equal(exact(res.Now.Add(long))) {
			f.Fatalf("committed at %v for %v, expires at %v", res.Now, long, got)
		}
	}},
	{"a paused owner cannot insert a nonce that has no row yet", func(f *fixture) {
		// The reason why the signer's row is the fence: nonce 2 has no row whose
		// token could be compared.
		paused := f.another()
		old := f.try(alice, short, nonce.Need{Signer: signer})
		late := on(old).hold(3, long)
		f.passes(old.Lease.ExpiresAt)

		snap := f.take(bob, signer)
		f.applied(bob, on(snap).hold(2, long))
		before := f.all(signer)
		if res := paused.commit(alice, late); res.Applied[0] {
			f.Fatal("the paused owner's commit was applied")
		}
		f.unchanged(before)
		f.applied(bob, on(before).hold(1, long))
		for _, row := range f.all(signer).Rows {
			if row.Token != snap.Lease.Token {
				f.Errorf("nonce %d carries token %d, want %d", row.Nonce, row.Token, snap.Lease.Token)
			}
		}
	}},
	{"a late commit of a batch lands only on the signers that were not taken over", func(f *fixture) {
		mine, lost := f.take(alice, signer), f.take(alice, other)
		f.take(alice, other)
		res := f.commit(alice, on(mine).hold(1, long), on(lost).hold(1, long))
		if !res.Applied[0] || res.Applied[1] {
			f.Fatalf("got %v", res.Applied)
		}
	}},
}

// refused commits an edit that must not be applied and must leave no trace.
func (f *fixture) refused(h lease.Holder, e *edit) {
	f.Helper()
	before := f.all(e.Signer)
	if res := f.commit(h, e); res.Applied[0] {
		f.Fatalf("a change was applied for %v: %+v", h, e.Change)
	}
	f.unchanged(before)
	for _, r := range e.Requests {
		if got := f.load(nonce.Need{Signer: e.Signer, RequestIDs: []string{r.ID}}); len(got.Requests) != 0 {
			f.Fatalf("request %q is remembered", r.ID)
		}
	}
}

var requestRules = []rule{
	{"a new request id is stored with what it got", func(f *fixture) {
		f.filled(signer, 4, 1, 2)
		e := on(f.all(signer)).again(2, 1, long).hold(2, long).asked("r")
		f.applied(alice, e)
		got := f.load(nonce.Need{Signer: signer, RequestIDs: []string{"r"}})
		f.same("requests", got.Requests, e.Requests)
		if rows := inOrder(got.Rows); len(rows) != 3 || rows[0].Nonce != 2 || rows[0].Attempt != 2 || rows[2].Nonce != 5 {
			f.Errorf("got rows %+v", rows)
		}
	}},
	{"a known request id is not applied and leaves no trace", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(1, long).asked("r"))
		snap := f.take(alice2, signer)
		before := f.all(signer)
		res := f.another().commit(alice2, on(snap).hold(1, long).asked("new").hold(1, long).asked("r"), on(f.take(alice2, other)).hold(1, long))
		if res.Applied[0] || !res.Applied[1] {
			f.Fatalf("got %v", res.Applied)
		}
		f.unchanged(before)
		if got := f.load(nonce.Need{Signer: signer, RequestIDs: []string{"new", "r"}}); len(got.Requests) != 1 {
			f.Fatalf("got %+v", got.Requests)
		}
	}},
	{"a known request id is not applied, also when a row is not as its change supposes", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(1, long).asked("r"))
		before := f.all(signer)
		e := on(before).hold(1, long).asked("r")
		e.row(nonce.RowChange{Nonce: 77, FromStatus: nonce.Released, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1})
		if res := f.another().commit(alice, e); res.Applied[0] {
			f.Fatal("it was applied")
		}
		f.unchanged(before)
	}},
	{"the same request id of another signer is another request", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(1, long).asked("r"))
		f.applied(alice, on(f.take(alice, other)).hold(1, long).asked("r"))
	}},
	{"a request id twice in one change aborts", func(f *fixture) {
		f.aborts(on(f.filled(signer, 1)).hold(1, long).asked("r").hold(1, long).asked("r"))
		if got := f.load(nonce.Need{Signer: signer, RequestIDs: []string{"r"}}); len(got.Requests) != 0 {
			f.Fatalf("got %+v", got.Requests)
		}
	}},
	{"many request ids of one change are each remembered", func(f *fixture) {
		e := on(f.take(alice, signer))
		want := map[string]bool{}
		for i := range 50 {
			id := string(rune('A' + i))
			e.row(nonce.RowChange{Nonce: e.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: long})
			e.Requests = append(e.Requests, nonce.Request{ID: id, Nonces: []int64{e.Next}, Attempts: []int64{1}})
			e.Next++
			e.Held++
			want[id] = true
		}
		f.applied(alice, e)
		need := nonce.Need{Signer: signer}
		for id := range want {
			need.RequestIDs = append(need.RequestIDs, id)
		}
		if got := f.load(need); len(got.Requests) != 50 || len(got.Rows) != 50 {
			f.Fatalf("got %d requests, %d rows", len(got.Requests), len(got.Rows))
		}
	}},
}

var releaseRules = []rule{
	{"a release keeps the rows, raises the token by one and leaves no owner", func(f *fixture) {
		snap := f.filled(signer, 3, 1)
		f.release(alice, []nonce.ReleaseTerm{{ID: snap.ID, Token: snap.Lease.Token}})
		got := f.all(signer)
		if got.Lease.Token != snap.Lease.Token+1 || got.Lease.Holder != (lease.Holder{}) || got.Lease.Held(got.Now) || got.Lease.ExpiresAt.After(got.Now) {
			f.Fatalf("before %+v, after %+v", snap.Lease, got.Lease)
		}
		got.Lease = snap.Lease
		f.same("all else", got, snap)
		if next := f.take(bob, signer); next.Lease.Token <= snap.Lease.Token+1 {
			f.Fatalf("acquired after release: %+v", next.Lease)
		}
	}},
	{"a release skips what is not the holder's under the token given", func(f *fixture) {
		old, bobs, mine := f.take(alice, signer), f.take(bob, "bobs"), f.take(alice, other)
		f.take(alice, signer)
		if n := f.release(alice, []nonce.ReleaseTerm{
			{ID: old.ID, Token: old.Lease.Token}, {ID: bobs.ID, Token: bobs.Lease.Token}, {ID: 1 << 40, Token: 1},
			{ID: mine.ID, Token: mine.Lease.Token},
		}); n != 1 {
			f.Errorf("%d of 4 were given back, want 1", n)
		}
		if n := f.release(alice2, []nonce.ReleaseTerm{{ID: old.ID, Token: old.Lease.Token + 1}}); n != 0 {
			f.Errorf("%d were given back by another incarnation, want 0", n)
		}
		for name, want := range map[string]lease.Holder{signer: alice, "bobs": bob, other: {}} {
			if got := f.all(name).Lease.Holder; got != want {
				f.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	}},
	{"a commit after the release is refused", func(f *fixture) {
		snap := f.filled(signer, 1)
		f.release(alice, []nonce.ReleaseTerm{{ID: snap.ID, Token: snap.Lease.Token}})
		f.refused(alice, on(snap).hold(1, long))
	}},
	{"a release of nothing is no error", func(f *fixture) {
		f.release(alice, nil)
	}},
}
