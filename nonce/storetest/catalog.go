package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/nonce"
)

// copied copies a signer page by page.
func (f *engines) copied(id int64, limit int) (rows []nonce.Row, requests []nonce.Remembered, last nonce.SignerCopy) {
	f.Helper()
	for row, name, pages := int64(0), "", 0; ; pages++ {
		page, err := f.Copy(f.Context(), id, row, name, limit)
		f.ok(err)
		if len(page.Rows) > limit || len(page.Requests) > limit || pages > 1000 {
			f.Fatalf("page %d has %d rows and %d requests, want %d at most", pages, len(page.Rows), len(page.Requests), limit)
		}
		rows, requests = append(rows, page.Rows...), append(requests, page.Requests...)
		if row, name = page.NextRow, page.NextID; !page.More {
			return rows, requests, page
		}
	}
}

var copyRules = []engineRule{
	{"a copy has the row, what is held and released, and the remembered requests", func(f *engines) {
		f.applied(alice, on(f.take(alice, signer)).hold(3, long))
		e := on(f.all(signer))
		for i := range 4 {
			e.hold(1, long).asked(fmt.Sprint("r", i))
		}
		at := f.applied(alice, e).Now
		f.applied(alice, on(f.all(signer)).release(0, 4).end(2, 1, nonce.Consumed).end(6, 1, nonce.Consumed))
		snap := f.all(signer)
		f.filled(other, 3, 1)
		want := slices.DeleteFunc(inOrder(snap.Rows), func(r nonce.Row) bool { return r.Status == nonce.Consumed })
		for limit := 1; limit < 7; limit++ {
			rows, requests, last := f.copied(snap.ID, limit)
			f.same("rows", rows, want)
			for i, r := range requests {
				if r.ID != fmt.Sprint("r", i) || !slices.Equal(r.Nonces, []int64{int64(3 + i)}) || !slices.Equal(r.Attempts, []int64{1}) || r.Hash == [16]byte{} || !exact(r.At).Equal(exact(at)) {
					f.Errorf("at most %d: got request %+v", limit, r)
				}
			}
			if len(requests) != 4 {
				f.Errorf("at most %d: got %d requests", limit, len(requests))
			}
			last.Snapshot.Released, last.Snapshot.Rows = snap.Released, snap.Rows
			f.same("signer", last.Snapshot, snap)
		}
	}},
	{"a copy of a signer that does not exist says so", func(f *engines) {
		if page, err := f.Copy(f.Context(), 1<<40, 0, "", 10); err != nil || page.Exists || page.More {
			f.Errorf("got %+v, %v", page, err)
		}
	}},
	{"versions come in order, with the engine", func(f *engines) {
		a, b := f.entered("a", 1), f.filled("b", 2)
		got, err := f.Versions(f.Context(), []int64{b.ID, 1 << 40, a.ID})
		f.ok(err)
		want := []nonce.RowVersion{{Version: b.Version}, {Version: -1}, {Version: a.Version, Engine: nonce.Performance}}
		if !slices.Equal(got, want) {
			f.Errorf("got %+v, want %+v", got, want)
		}
	}},
	{"the signers of the performance engine are found in pages", func(f *engines) {
		if got, now, err := f.Entered(f.Context(), 0, 10); err != nil || len(got) != 0 || now.IsZero() {
			f.Errorf("got %+v at %v, %v", got, now, err)
		}
		var want []string
		for i := range 5 {
			if name := fmt.Sprint("s", i); i%2 == 0 {
				f.entered(name, 1)
				want = append(want, name)
			} else {
				f.filled(name, 1)
			}
		}
		var names []string
		for after := int64(0); ; {
			page, _, err := f.Entered(f.Context(), after, 2)
			if f.ok(err); len(page) == 0 {
				break
			}
			for _, e := range page {
				snap := f.all(e.Signer)
				if e.ID != snap.ID || e.Version != snap.Version || e.Lease.Token != snap.Lease.Token || e.Lease.Holder != alice {
					f.Errorf("got %+v, want %+v", e, snap)
				}
				f.same("standing", e.Standing, snap.Standing)
				names, after = append(names, e.Signer), e.ID
			}
		}
		if !slices.Equal(names, want) {
			f.Errorf("got %v, want %v", names, want)
		}
	}},
}

var catalogRules = []engineRule{
	{"a cluster begins in RELIABLE", func(f *engines) {
		if got := f.state(); got.State != nonce.StateReliable || got.Goal != nonce.StateReliable || got.FlushShards != 0 || len(got.Accepted) != 0 || got.Now.IsZero() {
			f.Errorf("got %+v", got)
		}
	}},
	{"the state changes from the generation that was seen, once", func(f *engines) {
		from := f.state().Generation
		term := nonce.SwitchTerm{FromGeneration: from, To: nonce.StateDualWrite, Goal: nonce.StatePerformance, Reason: "because", By: "alice", Observe: long}
		got, err := f.SwitchEngine(f.Context(), term)
		f.ok(err)
		if got.State != nonce.StateDualWrite || got.Goal != nonce.StatePerformance || got.Generation <= from || got.Reason != "because" || got.By != "alice" ||
			!got.ObserveUntil.Equal(got.ChangedAt.Add(long)) {
			f.Errorf("got %+v", got)
		}
		term.To, term.Reason, term.Observe = nonce.StateDegraded, "late", 0
		if again, err := f.SwitchEngine(f.Context(), term); !errors.Is(err, nonce.ErrGeneration) || again.Generation != got.Generation || again.Reason != "because" {
			f.Errorf("from a generation that is gone: got %+v, %v", again, err)
		}
		observed := got.ObserveUntil
		term.FromGeneration, term.Goal = got.Generation, ""
		if got, err = f.SwitchEngine(f.Context(), term); err != nil || got.Goal != nonce.StateDegraded || !got.ObserveUntil.Equal(observed) {
			f.Errorf("got %+v, %v", got, err)
		}
		seen := f.state()
		got.Now = seen.Now
		f.same("state", seen, got)
	}},
	{"the cluster is not RELIABLE while a signer is entered", func(f *engines) {
		snap := f.entered(signer, 1)
		drain := f.to(nonce.StateDrain)
		term := nonce.SwitchTerm{FromGeneration: drain.Generation, To: nonce.StateReliable}
		if got, err := f.SwitchEngine(f.Context(), term); !errors.Is(err, nonce.ErrEntered) || got.State != nonce.StateDrain {
			f.Errorf("got %+v, %v", got, err)
		}
		f.give(alice, snap)
		if got, err := f.SwitchEngine(f.Context(), term); err != nil || got.State != nonce.StateReliable {
			f.Errorf("got %+v, %v", got, err)
		}
	}},
	{"servers are accepted in the generation that was seen, and outlive a drain", func(f *engines) {
		f.up()
		f.accept(redis2, redis1, redis2)
		drain := f.to(nonce.StateDrain)
		slices.SortFunc(drain.Accepted, func(a, b nonce.Identity) int { return cmp.Compare(a.RunID, b.RunID) })
		if !slices.Equal(drain.Accepted, []nonce.Identity{redis1, redis2}) {
			f.Errorf("got %+v", drain.Accepted)
		}
		if err := f.AcceptIdentities(f.Context(), drain.Generation-1, []nonce.Identity{redis1}); !errors.Is(err, nonce.ErrGeneration) || len(f.state().Accepted) != 2 {
			f.Errorf("got %v, %+v", err, f.state().Accepted)
		}
		f.accept()
		if got := f.state(); len(got.Accepted) != 0 || got.Generation != drain.Generation {
			f.Errorf("got %+v", got)
		}
	}},
	{"the number of flush shards is what the first asked for", func(f *engines) {
		for _, wanted := range []int{16, 4} {
			if got, err := f.FlushShards(f.Context(), wanted); err != nil || got != 16 || f.state().FlushShards != 16 {
				f.Errorf("asked for %d: got %d, %v", wanted, got, err)
			}
		}
	}},
	{"signers are counted by what the engines have to do for them", func(f *engines) {
		if got, err := f.EngineCounts(f.Context()); err != nil || got.Entered != 0 || got.Doubtful != 0 || !got.GrantUntil.IsZero() || !got.DoubtUntil.IsZero() || got.Now.IsZero() {
			f.Errorf("got %+v, %v", got, err)
		}
		f.filled("reliable", 1)
		snap := f.entered("a", 1)
		f.lose(alice, long, f.entered("lost", 1))
		free := f.entered("free", 1)
		f.release(alice, []nonce.ReleaseTerm{{ID: free.ID, Token: free.Lease.Token}})
		over := f.try(alice, short, nonce.Need{Signer: f.entered("expired", 1).Signer})
		f.passes(over.Lease.ExpiresAt)
		got, err := f.EngineCounts(f.Context())
		f.ok(err)
		if got.Entered != 3 || got.Unowned != 2 || got.Doubtful != 1 {
			f.Errorf("got %+v", got)
		}
		if !exact(got.GrantUntil).Equal(exact(snap.GrantUntil)) || !exact(got.DoubtUntil).Equal(exact(f.all("lost").DoubtUntil)) {
			f.Errorf("got %+v, want %v and %v", got, snap.GrantUntil, f.all("lost").DoubtUntil)
		}
	}},
	{"a flush shard is one session's at a time", func(f *engines) {
		first, second := f.flushLock(), f.flushLock()
		f.tries("first", first, 3, true)
		f.tries("first again", first, 3, true)
		f.tries("second", second, 3, false)
		f.tries("second, another shard", second, 4, true)
		f.ok(first.ReleaseShard(f.Context(), 3))
		f.tries("second, when it is given back", second, 3, true)
		f.tries("first, when it is taken", first, 3, false)
		f.ok(first.ReleaseShard(f.Context(), 3))
		f.ok(second.Alive(f.Context()))
		f.ok(second.Close())
		f.eventually("the locks of a session that ended", func() bool {
			got, err := first.TryShard(f.Context(), 3)
			f.ok(err)
			return got
		})
		f.ok(second.Close())
		if got, err := second.TryShard(f.Context(), 5); err == nil || got || second.Alive(f.Context()) == nil {
			f.Errorf("a session that ended: got %t, %v", got, err)
		}
	}},
}

func (f *engines) flushLock() nonce.FlushLock {
	f.Helper()
	l, err := f.FlushLock(f.Context())
	f.ok(err)
	f.Cleanup(func() { _ = l.Close() })
	return l
}

func (f *engines) tries(who string, l nonce.FlushLock, shard int, want bool) {
	f.Helper()
	if got, err := l.TryShard(f.Context(), shard); err != nil || got != want {
		f.Errorf("%s: got %t, %v, want %t", who, got, err, want)
	}
}

// eventually asks until it is so.
func (f *engines) eventually(what string, so func() bool) {
	f.Helper()
	poll := time.NewTicker(short)
	defer poll.Stop()
	for deadline := time.Now().Add(10 * time.Second); !so(); <-poll.C {
		if time.Now().After(deadline) {
			f.Fatalf("waited in vain for %s", what)
		}
	}
}
