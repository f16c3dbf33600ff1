package storetest

import (
	"time"

	"noncegate/lease"
)

func (f *fixture) nodes() []lease.Node {
	f.Helper()
	list, _, err := f.Nodes(f.Context())
	f.ok(err)
	return list
}

// shown is what the store shows of a node, which must be there.
func (f *fixture) shown(id string) lease.Node {
	f.Helper()
	for _, n := range f.nodes() {
		if n.Node == id {
			return n
		}
	}
	f.Fatalf("node %q is not shown", id)
	return lease.Node{}
}

func (f *fixture) leave(h lease.Holder) {
	f.Helper()
	f.ok(f.Leave(f.Context(), h))
}

var nodeRules = []rule{
	{"nodes are shown with what they say of themselves, in order of the bytes of their ids", func(f *fixture) {
		f.leave(f.bob)
		for _, id := range []string{"b:8080", "Z:1", "b-8080"} {
			_, err := f.Register(f.Context(), lease.Presence{Node: id, URL: "ws://" + id, Mode: "mode of " + id})
			f.ok(err)
		}
		list := f.nodes()
		for i, id := range []string{"Z:1", "alice", "b-8080", "b:8080", "bob"} {
			if len(list) != 5 || list[i].Node != id {
				f.Fatalf("got %+v", list)
			}
		}
		if n := list[0]; n.URL != "ws://Z:1" || n.Mode != "mode of Z:1" || n.Incarnation != 1 || !n.LeaseUntil.IsZero() || n.Live || n.Left || !n.StartedAt.Equal(n.SeenAt) {
			f.Errorf("got %+v", n)
		}
	}},
	{"a renewal raises the counter by one, and a start begins anew", func(f *fixture) {
		for want := int64(2); want < 5; want++ { // the first was the fixture's
			if got := f.renew(f.alice, ttl).Counter; got != want {
				f.Errorf("counter %d, want %d", got, want)
			}
		}
		_, err := f.Renew(f.Context(), lease.Holder{Node: "alice", Incarnation: f.alice.Incarnation + 1}, ttl)
		f.aborted(err, lease.ErrWentBack)
		if got := f.renew(f.alice, ttl).Counter; got != 5 {
			f.Errorf("a renewal of another incarnation counted: %d", got)
		}
		again, err := f.Register(f.Context(), lease.Presence{Node: "alice"})
		f.ok(err)
		if got := f.renew(again, ttl).Counter; got != 1 {
			f.Errorf("counter %d after a start", got)
		}
	}},
	{"a node that starts again owns nothing and has no lease", func(f *fixture) {
		f.take(f.alice, 0)
		before := f.shown("alice")
		if before.Shards != 1 || !before.Live {
			f.Fatalf("got %+v", before)
		}
		f.db.Advance(time.Second)
		f.leave(f.alice)
		again, err := f.Register(f.Context(), lease.Presence{Node: "alice", URL: "ws://new", Mode: "basic"})
		f.ok(err)
		n := f.shown("alice")
		if n.Holder != again || n.Shards != 0 || n.Live || n.Left || !n.LeaseUntil.IsZero() || n.URL != "ws://new" || n.Mode != "basic" || !n.StartedAt.After(before.StartedAt) {
			f.Errorf("got %+v, and before %+v", n, before)
		}
		if got := f.acquire(again, 0)[0]; got.Taken {
			f.Errorf("it takes a shard without a lease: %+v", got)
		}
		f.leave(f.alice) // of an earlier start
		if got := f.shown("alice"); got.Left {
			f.Errorf("got %+v", got)
		}
	}},
	{"a node is live while its lease runs", func(f *fixture) {
		began := f.now()
		f.db.Advance(ttl / 2)
		until := f.renew(f.alice, ttl).Until
		n := f.shown("alice")
		if !n.Live || !n.LeaseUntil.Equal(until) || n.SeenAt.Sub(began) < ttl/2 || n.StartedAt.After(began) {
			f.Errorf("got %+v, began at %v", n, began)
		}
		f.db.Advance(ttl / 2)
		if f.shown("bob").Live || !f.shown("alice").Live {
			f.Errorf("got %+v", f.nodes())
		}
		f.renew(f.bob, ttl)
		if !f.shown("bob").Live {
			f.Errorf("got %+v", f.nodes())
		}
	}},
	{"a node that left is not live, and its renewals count but do not make it so", func(f *fixture) {
		f.take(f.alice, 0)
		f.leave(f.alice)
		f.leave(f.alice)
		left := f.shown("alice")
		if left.Live || !left.Left || left.Shards != 1 || !left.LeaseUntil.After(f.now()) {
			f.Errorf("got %+v", left)
		}
		if f.acquire(f.bob, 0)[0].Taken {
			f.Error("its shard is taken while its lease runs")
		}
		f.db.Advance(time.Second)
		if got := f.renew(f.alice, ttl); got.Counter != 2 || len(got.Shards) != 1 {
			f.Errorf("got %+v", got)
		}
		if n := f.shown("alice"); n.Live || !n.Left || !n.SeenAt.After(left.SeenAt) {
			f.Errorf("got %+v", n)
		}
	}},
	{"a node that nobody saw for long is shown no more, and its incarnations go on", func(f *fixture) {
		f.db.Advance(lease.Remembered + time.Second)
		if got := f.nodes(); len(got) != 0 {
			f.Errorf("got %+v", got)
		}
		if again := f.node("alice"); again.Incarnation != f.alice.Incarnation+1 || !f.shown("alice").Live {
			f.Errorf("got %v", again)
		}
	}},
	{"who has which shard is told with the nodes, by one clock", func(f *fixture) {
		f.take(f.alice, 0)
		f.take(f.bob, 1)
		f.db.Advance(ttl / 2)
		f.renew(f.alice, ttl)
		f.db.Advance(ttl / 2)
		o, err := f.Owners(f.Context())
		f.ok(err)
		if len(o.Nodes) != 2 || o.Nodes[0].Shards != 1 || o.Nodes[1].Shards != 1 || o.Now.Before(o.Nodes[0].SeenAt) {
			f.Errorf("got %+v", o)
		}
		if got := o.Serving(); got[0] != "alice" || got[1] != "" {
			f.Errorf("got %q", got)
		}
	}},
}
