package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

var lockedRules = []rule{
	{"locked creates the signer and hands out under token 0", func(f *fixture) {
		at := f.locked(nonce.Need{Signer: signer}, func(s nonce.Snapshot) *edit {
			if !s.Exists || s.Next != 0 || s.ID == 0 {
				f.Errorf("plan sees %+v", s)
			}
			return on(s).hold(2, long).asked("r")
		})
		got := f.all(signer)
		if got.Next != 2 || got.Held != 2 || len(got.Rows) != 2 || got.Lease.Holder.Node != "" {
			f.Fatalf("got %+v", got)
		}
		for _, row := range got.Rows {
			if row.Token != 0 || row.Status != nonce.Held || !exact(row.HeldUntil).Equal(exact(at.Add(long))) {
				f.Errorf("written at %v: got %+v", at, row)
			}
		}
	}},
	{"locked sees what was committed before, as it was asked for", func(f *fixture) {
		f.filled(signer, 5, 3, 1)
		f.applied(alice, on(f.all(signer)).hold(1, long).asked("r"))
		want := f.load(nonce.Need{Signer: signer, Released: 1, Nonces: []int64{0}, RequestIDs: []string{"r"}})
		need := nonce.Need{Signer: signer, Released: 1, Nonces: []int64{0}, RequestIDs: []string{"r"}}
		f.locked(need, func(s nonce.Snapshot) *edit {
			f.same("snapshot", s, want)
			return check(s)
		})
	}},
	{"locked raises the version, so that the owner's next commit is refused, and leaves the lease", func(f *fixture) {
		snap := f.filled(signer, 2, 1)
		f.locked(nonce.Need{Signer: signer}, func(s nonce.Snapshot) *edit { return on(s).again(1, 1, long) })
		f.refused(alice, on(snap).again(1, 1, long))
		got := f.all(signer)
		if got.Version != snap.Version+1 || got.Held != 2 || got.Rows[1].Token != 0 {
			f.Errorf("got %+v", got)
		}
		f.same("lease", got.Lease.ExpiresAt.UnixMicro(), snap.Lease.ExpiresAt.UnixMicro())
		f.same("token", got.Lease.Token, snap.Lease.Token)
		f.applied(alice, on(got).hold(1, long))
	}},
	{"an error of the plan rolls back and is returned as it is", func(f *fixture) {
		before := f.filled(signer, 2)
		refusal := errors.New("no")
		_, err := f.Store.Locked(f.Context(), nonce.Need{Signer: signer}, func(s nonce.Snapshot) (nonce.Change, error) {
			return on(s).hold(1, long).Change, refusal
		})
		if err != refusal {
			f.Errorf("got %v, want %v", err, refusal)
		}
		f.unchanged(before)
		f.locked(nonce.Need{Signer: signer}, check) // the lock is free again
	}},
	{"a plan that only checks commits nothing", func(f *fixture) {
		before := f.filled(signer, 2)
		f.locked(nonce.Need{Signer: signer}, check)
		f.unchanged(before)
	}},
	{"a plan against the rows aborts and leaves no trace", func(f *fixture) {
		f.filled(signer, 3, 1)
		f.applied(alice, on(f.all(signer)).hold(1, long).asked("r"))
		before := f.all(signer)
		for name, plan := range map[string]func(nonce.Snapshot) *edit{
			"a row in another status": func(s nonce.Snapshot) *edit { return on(s).hold(1, long).end(1, 1, nonce.Consumed) },
			"a new nonce with a row": func(s nonce.Snapshot) *edit {
				return on(s).row(nonce.RowChange{Nonce: 0, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: long})
			},
			"a known request id": func(s nonce.Snapshot) *edit { return on(s).hold(1, long).asked("r") },
		} {
			_, err := f.Store.Locked(f.Context(), nonce.Need{Signer: signer}, func(s nonce.Snapshot) (nonce.Change, error) {
				return plan(s).Change, nil
			})
			if err == nil || nonce.OutcomeOf(err) != nonce.Aborted {
				f.Errorf("%s: got %v, want an aborted transaction", name, err)
			}
			f.unchanged(before)
		}
	}},
	{"locked raises the floor too", func(f *fixture) {
		f.filled(signer, 4, 0, 3)
		f.locked(nonce.Need{Signer: signer}, func(s nonce.Snapshot) *edit { return on(s).raise(2) })
		got := f.all(signer)
		below := got.Rows[slices.IndexFunc(got.Rows, func(r nonce.Row) bool { return r.Nonce == 0 })]
		if got.Floor != 2 || below.Status != nonce.Consumed || below.Token != 0 || !slices.Equal(got.Released, []int64{3}) {
			f.Fatalf("got %+v", got)
		}
	}},
	{"two locked transactions of one signer follow each other", func(f *fixture) {
		const each = 25
		var all sync.WaitGroup
		for _, store := range []nonce.Store{f.Store, f.another().Store} {
			all.Go(func() {
				for done := 0; done < each; {
					_, err := store.Locked(f.Context(), nonce.Need{Signer: signer}, func(s nonce.Snapshot) (nonce.Change, error) {
						return on(s).hold(1, long).Change, nil
					})
					switch {
					case err == nil:
						done++
					case nonce.OutcomeOf(err) != nonce.Aborted: // the wait for the lock is bounded, and nothing happened
						f.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if got := f.all(signer); got.Next != 2*each || got.Held != 2*each || len(got.Rows) != 2*each {
			f.Fatalf("got next %d, held %d, %d rows, want %d", got.Next, got.Held, len(got.Rows), 2*each)
		}
	}},
}

// locked runs a plan that must be committed.
func (f *fixture) locked(need nonce.Need, plan func(nonce.Snapshot) *edit) time.Time {
	f.Helper()
	at, err := f.Store.Locked(f.Context(), need, func(s nonce.Snapshot) (nonce.Change, error) { return plan(s).Change, nil })
	f.ok(err)
	return at
}

func check(s nonce.Snapshot) *edit {
	e := on(s)
	e.Check = true
	return e
}
