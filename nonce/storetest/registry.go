package storetest

import (
	"errors"
	"time"

	"noncegate/lease"
)

var registryRules = []rule{
	{"each start of a node is a higher incarnation with counter 0", func(f *fixture) {
		another := f.another()
		first := f.register(lease.Presence{Node: "n", URL: "ws://one"})
		second := another.register(lease.Presence{Node: "n", URL: "ws://two"})
		if first.Node != "n" || first.Incarnation < 1 || second.Incarnation <= first.Incarnation {
			f.Fatalf("got %v, then %v", first, second)
		}
		for want := range int64(3) {
			if got := f.beat(second, 0); got.Counter != want+1 || got.Incarnation != second.Incarnation || got.Now.IsZero() {
				f.Errorf("beat %d: got %+v", want+1, got)
			}
		}
	}},
	{"a lower incarnation sees the higher one and changes nothing", func(f *fixture) {
		first := f.start("n")
		f.beat(first, 1)
		second := f.start("n")
		f.beat(second, 2)
		before := f.node("n")
		f.passes(before.SeenAt)
		if got := f.beat(first, 7); got.Incarnation != second.Incarnation || got.Counter != 1 {
			f.Fatalf("got %+v", got)
		}
		f.ok(f.Store.Leave(f.Context(), first))
		f.same("node", f.node("n"), before)
	}},
	{"nodes do not touch each other", func(f *fixture) {
		a, b := f.start("a"), f.start("b")
		before := f.node("b")
		f.beat(a, 3)
		f.ok(f.Store.Leave(f.Context(), a))
		f.same("node", f.node("b"), before)
		if got := f.beat(b, 0); got.Counter != 1 {
			f.Fatalf("got %+v", got)
		}
	}},
	{"a beat of a node that is not there says that the store went back", func(f *fixture) {
		if _, err := f.Store.Beat(f.Context(), alice, 0); !errors.Is(err, lease.ErrWentBack) {
			f.Fatalf("got %v, want %v", err, lease.ErrWentBack)
		}
		if list := f.nodes(); len(list) != 0 {
			f.Errorf("it is there now: %+v", list)
		}
	}},
	{"nodes are shown with what they say of themselves, in order of the bytes of their ids", func(f *fixture) {
		for _, id := range []string{"b:8080", "Z:1", "a:8081", "b-8080", "a"} {
			f.register(lease.Presence{Node: id, URL: "ws://" + id, Mode: "mode of " + id, Patience: long})
		}
		list := f.another().nodes()
		for i, id := range []string{"Z:1", "a", "a:8081", "b-8080", "b:8080"} {
			if len(list) != 5 {
				f.Fatalf("got %d nodes: %+v", len(list), list)
			}
			n := list[i]
			if n.Node != id || n.URL != "ws://"+id || n.Mode != "mode of "+id || n.Incarnation != 1 || n.Signers != 0 || !n.Live || n.Left {
				f.Errorf("node %d: got %+v, want %s", i, n, id)
			}
			if n.StartedAt.IsZero() || n.SeenAt.Before(n.StartedAt) {
				f.Errorf("%s: started at %v, seen at %v", id, n.StartedAt, n.SeenAt)
			}
		}
	}},
	{"a beat shows when a node was seen and how many signers it owns", func(f *fixture) {
		h := f.start("n")
		before := f.node("n")
		f.passes(before.SeenAt)
		beat := f.beat(h, 42)
		got := f.node("n")
		if got.Signers != 42 || !got.SeenAt.After(before.SeenAt) || got.SeenAt.After(beat.Now) || !got.StartedAt.Equal(before.StartedAt) {
			f.Errorf("beat at %v: got %+v, it was %+v", beat.Now, got, before)
		}
	}},
	{"a node is live while its last beat is younger than its own patience, by the store's clock", func(f *fixture) {
		f.register(lease.Presence{Node: "patient", Patience: long})
		hasty := f.register(lease.Presence{Node: "hasty", Patience: 5 * short})
		f.livesAsItSays("hasty", 5*short)
		f.passes(f.node("hasty").SeenAt.Add(5 * short))
		if n := f.node("hasty"); n.Live || n.Left {
			f.Errorf("silent for longer than it may: got %+v", n)
		}
		if n := f.node("patient"); !n.Live {
			f.Errorf("got %+v", n)
		}
		before := f.node("hasty")
		f.beat(hasty, 0)
		if n := f.node("hasty"); !n.SeenAt.After(before.SeenAt) {
			f.Errorf("after a beat: got %+v", n)
		}
		f.livesAsItSays("hasty", 5*short)
	}},
	{"a node that left is not live, and its beats count but do not make it so", func(f *fixture) {
		h := f.start("n")
		f.beat(h, 3)
		f.ok(f.Store.Leave(f.Context(), h))
		if n := f.node("n"); n.Live || !n.Left || n.Signers != 0 || n.Incarnation != h.Incarnation {
			f.Errorf("got %+v", n)
		}
		left := f.node("n").SeenAt
		f.passes(left)
		if got := f.beat(h, 1); got.Counter != 2 {
			f.Errorf("got %+v", got)
		}
		if n := f.node("n"); n.Live || !n.Left || n.Signers != 1 || !n.SeenAt.After(left) {
			f.Errorf("after a beat: got %+v", n)
		}
		f.ok(f.Store.Leave(f.Context(), h))
		if n := f.node("n"); n.Live || !n.Left || n.Signers != 0 {
			f.Errorf("after another leave: got %+v", n)
		}
	}},
	{"a node that left and starts again is live, a higher incarnation, and owns nothing", func(f *fixture) {
		first := f.start("n")
		f.beat(first, 9)
		f.ok(f.Store.Leave(f.Context(), first))
		left := f.node("n")
		f.passes(left.SeenAt)
		second := f.register(lease.Presence{Node: "n", URL: "ws://new", Mode: "basic", Patience: long})
		n := f.node("n")
		if second.Incarnation <= first.Incarnation || n.Holder != second || !n.Live || n.Left || n.Signers != 0 || n.URL != "ws://new" || n.Mode != "basic" || !n.StartedAt.After(left.SeenAt) {
			f.Errorf("started as %v after %v: got %+v", second, first, n)
		}
		f.ok(f.Store.Leave(f.Context(), first)) // of an earlier start
		f.same("node", f.node("n"), n)
	}},
	{"nodes come with the store's clock, also when there are none", func(f *fixture) {
		list, now, err := f.Store.Nodes(f.Context())
		f.ok(err)
		if len(list) != 0 || now.IsZero() {
			f.Fatalf("got %+v at %v", list, now)
		}
		f.passes(now)
		f.start("n")
		if list, later, err := f.Store.Nodes(f.Context()); err != nil || !later.After(now) || len(list) != 1 || list[0].SeenAt.After(later) {
			f.Errorf("got %+v at %v, %v", list, later, err)
		}
	}},
}

// start registers a node that is live for long.
func (f *fixture) start(id string) lease.Holder {
	f.Helper()
	return f.register(lease.Presence{Node: id, URL: "ws://" + id, Mode: "worker-queue", Patience: long})
}

func (f *fixture) register(p lease.Presence) lease.Holder {
	f.Helper()
	h, err := f.Store.Register(f.Context(), p)
	f.ok(err)
	return h
}

func (f *fixture) beat(h lease.Holder, signers int64) lease.Heartbeat {
	f.Helper()
	beat, err := f.Store.Beat(f.Context(), h, signers)
	f.ok(err)
	return beat
}

func (f *fixture) nodes() []lease.Node {
	f.Helper()
	list, _, err := f.Store.Nodes(f.Context())
	f.ok(err)
	return list
}

// node is what the registry shows of a node, which must be there.
func (f *fixture) node(id string) lease.Node {
	f.Helper()
	for _, n := range f.nodes() {
		if n.Node == id {
			return n
		}
	}
	f.Fatalf("node %q is not shown", id)
	return lease.Node{}
}

// livesAsItSays compares what the registry says of a node with the clock that it
// says this by.
func (f *fixture) livesAsItSays(id string, patience time.Duration) {
	f.Helper()
	list, now, err := f.Store.Nodes(f.Context())
	f.ok(err)
	for _, n := range list {
		if n.Node == id && n.Live != exact(n.SeenAt).Add(patience).After(exact(now)) {
			f.Errorf("at %v, with patience for %v: got %+v", now, patience, n)
		}
	}
}
