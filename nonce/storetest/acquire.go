package storetest

import (
	"context"
	"slices"

	"noncegate/lease"
	"noncegate/nonce"
)

var acquireRules = []rule{
	{"acquire creates a signer that does not exist", func(f *fixture) {
		got := f.take(alice, signer)
		if !got.Exists || got.Signer != signer || got.ID == 0 || got.Lease.Token < 1 || got.Lease.Holder != alice {
			f.Fatalf("got %+v", got)
		}
		if got.Next != 0 || got.Floor != 0 || got.Held != 0 {
			f.Fatalf("a new signer does not begin at 0: %+v", got)
		}
	}},
	{"acquire raises the token and leaves the version, also for the same holder", func(f *fixture) {
		first := f.take(alice, signer)
		f.applied(alice, on(first).hold(1, long))
		second := f.take(alice, signer)
		if second.Lease.Token <= first.Lease.Token || second.Version != first.Version+1 {
			f.Fatalf("first %+v, after a commit %+v", first, second)
		}
		third := f.take(alice, signer)
		if third.Lease.Token <= second.Lease.Token || third.Version != second.Version {
			f.Fatalf("second %+v, third %+v", second, third)
		}
	}},
	{"a lease ends ttl after the acquire by the store's clock", func(f *fixture) {
		before := f.now()
		got := f.take(alice, signer)
		if e := got.Lease.ExpiresAt; e.Before(before.Add(long)) || e.After(got.Now.Add(long)) || !got.Lease.Held(got.Now) {
			f.Fatalf("acquired between %v and %v for %v, expires at %v", before, got.Now, long, e)
		}
	}},
	{"a lease that is live is not taken and nothing changes", func(f *fixture) {
		before := f.filled(signer, 2)
		got := f.another().try(bob, long, nonce.Need{Signer: signer})
		if got.Acquired || got.Lease.Holder != alice || !got.Exists {
			f.Fatalf("got %+v", got)
		}
		f.unchanged(before)
	}},
	{"an expired lease is taken and the token rises", func(f *fixture) {
		first := f.try(alice, short, nonce.Need{Signer: signer})
		f.passes(first.Lease.ExpiresAt)
		if second := f.take(bob, signer); second.Lease.Token <= first.Lease.Token || second.Lease.Holder != bob {
			f.Fatalf("first %+v, second %+v", first.Lease, second.Lease)
		}
	}},
	{"acquire says from which other node it took an expired lease, and only then", func(f *fixture) {
		from := func(h lease.Holder) string {
			f.Helper()
			snap := f.try(h, short, nonce.Need{Signer: signer})
			if !snap.Acquired {
				f.Fatalf("%v did not get the lease: %+v", h, snap.Lease)
			}
			f.passes(snap.Lease.ExpiresAt)
			return snap.TookOverFrom
		}
		got := []string{from(alice), from(alice), from(alice2), from(bob), from(bob)}
		snap := f.load(nonce.Need{Signer: signer})
		f.release(bob, []nonce.ReleaseTerm{{ID: snap.ID, Token: snap.Lease.Token}})
		got = append(got, from(alice))
		f.take(bob, signer)
		if refused := f.try(alice, short, nonce.Need{Signer: signer}); refused.TookOverFrom != "" {
			f.Errorf("a lease that was not taken: from %q", refused.TookOverFrom)
		}
		if want := []string{"", "", "", "alice", "", ""}; !slices.Equal(got, want) {
			f.Errorf("new, own, own incarnation, expired, own, released: got %q, want %q", got, want)
		}
	}},
	{"a higher incarnation of the same node takes the lease at once", func(f *fixture) {
		first := f.take(alice, signer)
		if second := f.take(alice2, signer); second.Lease.Token <= first.Lease.Token || second.Lease.Holder != alice2 {
			f.Fatalf("first %+v, second %+v", first.Lease, second.Lease)
		}
	}},
	{"a lower incarnation of the same node is refused", func(f *fixture) {
		f.take(alice2, signer)
		before := f.all(signer)
		if got := f.try(alice, long, nonce.Need{Signer: signer}); got.Acquired || got.Lease.Holder != alice2 {
			f.Fatalf("got %+v", got)
		}
		f.unchanged(before)
	}},
	{"acquire answers every need in order, taken or not", func(f *fixture) {
		f.take(bob, "b")
		needs := []nonce.Need{{Signer: "c"}, {Signer: "b"}, {Signer: "a"}}
		snaps, err := f.Store.Acquire(f.Context(), alice, long, needs)
		f.ok(err)
		for i, want := range []struct {
			signer   string
			acquired bool
		}{{"c", true}, {"b", false}, {"a", true}} {
			if snaps[i].Signer != want.signer || snaps[i].Acquired != want.acquired {
				f.Errorf("snapshot %d: got %+v, want %+v", i, snaps[i], want)
			}
		}
	}},
	{"acquire loads what the last owner committed", func(f *fixture) {
		f.filled(signer, 5, 1, 3)
		got := f.another().try(alice2, long, nonce.Need{Signer: signer, Released: 10, Nonces: []int64{0}})
		if !got.Acquired || got.Next != 5 || got.Held != 3 || !slices.Equal(got.Released, []int64{1, 3}) || len(got.Rows) != 3 {
			f.Fatalf("got %+v", got)
		}
	}},
	{"the lease shows the url its holder registered with, also after the holder left", func(f *fixture) {
		h := f.register(lease.Presence{Node: "carol", URL: "ws://carol:8080/ws"})
		if got := f.take(h, signer); got.Lease.URL != "ws://carol:8080/ws" {
			f.Errorf("acquire: got %+v", got.Lease)
		}
		f.ok(f.Store.Leave(f.Context(), h))
		if got := f.load(nonce.Need{Signer: signer}); got.Lease.URL != "ws://carol:8080/ws" || got.Lease.Holder != h {
			f.Errorf("load: got %+v", got.Lease)
		}
		if got := f.take(bob, other); got.Lease.URL != "" {
			f.Errorf("a holder that never registered: got %+v", got.Lease)
		}
	}},
	{"a context that is over changes nothing and is not unknown", func(f *fixture) {
		snap := f.take(alice, signer)
		before := f.all(signer)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		_, acquire := f.Store.Acquire(ctx, alice, long, []nonce.Need{{Signer: signer}})
		_, commit := f.Store.Commit(ctx, alice, long, []nonce.Change{on(snap).hold(1, long).Change})
		_, release := f.Store.Release(ctx, alice, []nonce.ReleaseTerm{{ID: snap.ID, Token: snap.Lease.Token}})
		for _, err := range []error{acquire, commit, release} {
			if err == nil || nonce.OutcomeOf(err) == nonce.Unknown {
				f.Errorf("got %v", err)
			}
		}
		f.unchanged(before)
	}},
}

var loadRules = []rule{
	{"load creates nothing and says that a signer does not exist", func(f *fixture) {
		for range 2 {
			if got := f.load(nonce.Need{Signer: signer, Released: 5, Due: 5, Nonces: []int64{0}, RequestIDs: []string{"r"}}); got.Exists || got.Signer != signer || got.Next != 0 || len(got.Rows) != 0 {
				f.Fatalf("got %+v", got)
			}
		}
	}},
	{"load answers every need in order", func(f *fixture) {
		f.take(alice, "a")
		f.take(alice, "b")
		snaps, err := f.Store.Load(f.Context(), []nonce.Need{{Signer: "b"}, {Signer: "none"}, {Signer: "a"}})
		f.ok(err)
		if len(snaps) != 3 || snaps[0].Signer != "b" || snaps[1].Signer != "none" || snaps[1].Exists || snaps[2].Signer != "a" {
			f.Fatalf("got %+v", snaps)
		}
	}},
	{"released nonces come lowest first and it says when there are more", func(f *fixture) {
		f.filled(signer, 6, 4, 1, 5, 2)
		for _, want := range []struct {
			limit    int
			released []int64
			more     bool
		}{{2, []int64{1, 2}, true}, {4, []int64{1, 2, 4, 5}, false}, {9, []int64{1, 2, 4, 5}, false}} {
			got := f.load(nonce.Need{Signer: signer, Released: want.limit})
			if !slices.Equal(got.Released, want.released) || got.ReleasedMore != want.more || len(got.Rows) != len(want.released) {
				f.Errorf("at most %d: got %v, more %t, %d rows", want.limit, got.Released, got.ReleasedMore, len(got.Rows))
			}
		}
	}},
	{"released nonces below the floor are not offered", func(f *fixture) {
		e := on(f.filled(signer, 6, 1, 2, 4))
		e.Floor = 2
		f.applied(alice, e)
		if got := f.load(nonce.Need{Signer: signer, Released: 2}); !slices.Equal(got.Released, []int64{2, 4}) || got.ReleasedMore {
			f.Fatalf("got %+v", got)
		}
	}},
	{"overdue holds come earliest deadline first, by the store's clock", func(f *fixture) {
		e := on(f.take(alice, signer)).hold(1, long).hold(1, 3*short).hold(1, short).hold(1, 2*short)
		res := f.applied(alice, e)
		if got := f.load(nonce.Need{Signer: signer, Due: 9}); len(got.Due) > 3 || got.Held != 4 {
			f.Fatalf("got %+v", got)
		}
		f.passes(res.Now.Add(3 * short))
		for limit, want := range [][]int64{{}, {2}, {2, 3}, {2, 3, 1}, {2, 3, 1}} {
			got := f.load(nonce.Need{Signer: signer, Due: limit})
			if due := noncesOf(got.Due); !slices.Equal(due, want) || got.Held != 4 || len(got.Rows) != len(want) {
				f.Errorf("at most %d: got %v, %d rows, %d held", limit, due, len(got.Rows), got.Held)
			}
		}
	}},
	{"each row that was asked for comes once", func(f *fixture) {
		res := f.applied(alice, on(f.take(alice, signer)).hold(2, short).asked("r").hold(3, long))
		f.applied(alice, on(f.all(signer)).release(3))
		f.passes(res.Now.Add(short))
		got := f.load(nonce.Need{
			Signer: signer, Released: 5, Due: 1, Nonces: []int64{3, 0, 2, 77}, RequestIDs: []string{"r", "unknown"},
		})
		if rows := noncesOf(inOrder(got.Rows)); !slices.Equal(rows, []int64{0, 1, 2, 3}) {
			f.Errorf("got rows %v", rows)
		}
		if len(got.Requests) != 1 || got.Requests[0].ID != "r" {
			f.Errorf("got requests %+v", got.Requests)
		}
	}},
	{"rows carry everything but what only a list fills", func(f *fixture) {
		snap := f.take(alice, signer)
		res := f.applied(alice, on(snap).hold(3, long).asked("r"))
		f.applied(alice, on(f.all(signer)).release(1).end(2, 1, nonce.Consumed))
		got := f.load(nonce.Need{Signer: signer, Nonces: []int64{0, 1, 2}})
		token := snap.Lease.Token
		f.same("rows", inOrder(got.Rows), []nonce.Row{
			{Nonce: 0, Status: nonce.Held, Attempt: 1, Token: token, HeldUntil: res.Now.Add(long)},
			{Nonce: 1, Status: nonce.Released, Attempt: 1, Token: token, Reason: "given back"},
			{Nonce: 2, Status: nonce.Consumed, Attempt: 1, Token: token, TxHash: nonce.TxHash{0: 0xab, 31: 2}},
		})
	}},
}

func noncesOf(rows []nonce.Row) []int64 {
	out := make([]int64, len(rows))
	for i, r := range rows {
		out[i] = r.Nonce
	}
	return out
}
