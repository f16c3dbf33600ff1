package service_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

func watchEvery(d time.Duration) func(*service.Config) {
	return func(c *service.Config) { c.WatchEvery = d }
}

// owned are the shards that the node serves.
func (n *node) owned() (ids []int) {
	for _, o := range n.Shards() {
		if o.Mine {
			ids = append(ids, o.Shard)
		}
	}
	return ids
}

// holder is the run of a node that the registry shows.
func (d *disk) holder(t *testing.T, node string) lease.Holder {
	t.Helper()
	nodes, _, err := d.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node == node {
			return n.Holder
		}
	}
	t.Fatalf("there is no node %s", node)
	return lease.Holder{}
}

// watching runs test in fake time with two nodes, a and b, that look every half a second who
// owns which shard, and have their shares. The test begins between two looks.
func watching(t *testing.T, test func(t *testing.T, d *disk, a, b *node)) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		a, b := start(t, d, "a", watchEvery(500*time.Millisecond)), start(t, d, "b", watchEvery(500*time.Millisecond))
		time.Sleep(10*time.Second + time.Millisecond)
		if len(a.owned()) != shards/2 || len(b.owned()) != shards/2 {
			t.Fatalf("a has %v, b has %v", a.owned(), b.owned())
		}
		test(t, d, a, b)
	})
}

func TestAShardThatIsMovedIsServedByThatNodeAndComesBackWhenUnpinned(t *testing.T) {
	watching(t, func(t *testing.T, _ *disk, a, b *node) {
		before := a.owned()
		moved := before[0]
		// Any node may be asked, not only the owner.
		o, err := b.Move(t.Context(), moved, "b")
		if err != nil || o.Shard != moved || o.Owner != "a" || o.Preferred != "b" || o.Pinned != "b" || o.Mine {
			t.Fatalf("got %+v, %v", o, err)
		}
		time.Sleep(time.Second + time.Millisecond)
		if slices.Contains(a.owned(), moved) || !slices.Contains(b.owned(), moved) {
			t.Errorf("after the move a has %v, b has %v", a.owned(), b.owned())
		}
		// What is pinned is of the node's share: it gives up another one for it.
		time.Sleep(10 * time.Second)
		if len(a.owned()) != shards/2 || len(b.owned()) != shards/2 || !slices.Contains(b.owned(), moved) {
			t.Errorf("later a has %v, b has %v", a.owned(), b.owned())
		}
		for name, n := range map[string]*node{"a": a, "b": b} {
			if o := n.Shards()[moved]; o.Owner != "b" || o.URL != "ws://b" || o.Pinned != "b" || o.Preferred != "b" || o.Mine != (n == b) {
				t.Errorf("%s shows %+v", name, o)
			}
		}
		if o, err := a.Move(t.Context(), moved, ""); err != nil || o.Pinned != "" || o.Preferred != "a" {
			t.Fatalf("unpinned: %+v, %v", o, err)
		}
		time.Sleep(10 * time.Second)
		if !slices.Equal(a.owned(), before) {
			t.Errorf("unpinned, a has %v, want %v", a.owned(), before)
		}
	})
}

func TestAMoveThatCannotBeIsRefusedAndChangesNothing(t *testing.T) {
	watching(t, func(t *testing.T, d *disk, a, b *node) {
		start(t, d, "basic", basicMode)
		b.StepDown()
		if err := d.Leave(t.Context(), d.holder(t, "b")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			shard int
			node  string
			want  string
		}{
			{-1, "a", "-1 is none of the shards of this database, which are 0 to 3"},
			{shards, "a", "4 is none of the shards of this database, which are 0 to 3"},
			{0, "c", `"c" is no live node of mode worker-queue; there are a`},
			{0, "basic", `"basic" is no live node of mode worker-queue; there are a`},
			{0, "b", `"b" is no live node of mode worker-queue; there are a`}, // it has left
		} {
			if _, err := a.Move(t.Context(), c.shard, c.node); err == nil || err.Error() != c.want {
				t.Errorf("shard %d to %q: got %v, want %s", c.shard, c.node, err, c.want)
			}
		}
		d.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpPin {
				return errCut
			}
			return nil
		})
		if _, err := a.Move(t.Context(), 0, "a"); nonce.OutcomeOf(err) != nonce.Unknown {
			t.Errorf("cut: %v", err)
		}
		refused := 0
		d.onBefore(func(c memstore.Call) error {
			if c.Op != memstore.OpPin {
				return nil
			}
			refused++
			return &nonce.StoreError{Outcome: nonce.Aborted, Err: errors.New("the row is locked")}
		})
		if _, err := a.Move(t.Context(), 0, "a"); nonce.OutcomeOf(err) != nonce.Aborted || refused < 10 {
			t.Errorf("the row stays locked: %v after %d tries", err, refused)
		}
		d.onBefore(nil)
		a.Halt(errors.New("the store went back"))
		if _, err := a.Move(t.Context(), 0, "a"); err == nil {
			t.Error("a halted node moved a shard")
		}
		all, err := d.Owners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range all.Shards {
			if row.Pinned != "" {
				t.Errorf("shard %d is pinned to %s", row.Shard, row.Pinned)
			}
		}
	})
}

// TestAServiceStartsThoughTheFirstLooksFail: for a while, and not for ever.
func TestAServiceStartsThoughTheFirstLooksFail(t *testing.T) {
	// After more than 3 s the next pause, which is drawn, may end later than the start is tried.
	for lasts, starts := range map[time.Duration]bool{3 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			d, began := newDisk(), time.Now()
			d.onBefore(func(call memstore.Call) error {
				if call.Op == memstore.OpOwners && time.Since(began) < lasts {
					return errCut
				}
				return nil
			})
			h := d.register(t, "a")
			s, err := service.New(t.Context(), d, h, settings(), &figures{}, &events{}, func(error) {}, quiet(t))
			if (err == nil) != starts {
				t.Errorf("the looks fail for %v, and the start ended with %v", lasts, err)
			}
			if err == nil {
				_ = s.Stop(t.Context())
			}
		})
	}
}

// toldEarly is a store whose server crashes between what a release did and its commit: it says
// how many shards there were, and then nothing more.
type toldEarly struct{ *disk }

func (s toldEarly) Release(_ context.Context, _ lease.Holder, terms []lease.ShardTerm) (int, error) {
	return len(terms), &nonce.StoreError{Outcome: nonce.Unknown, Err: errCut}
}

func TestAReleaseOfUnknownOutcomeIsNotTakenForDone(t *testing.T) {
	d := newDisk()
	a := startAs(t, d, toldEarly{d}, d.register(t, "a"))
	a.want("allocate -> 0#1")
	before := a.Shards()
	a.StepDown()
	for i, now := range a.Shards() {
		if now.Token > before[i].Token {
			t.Errorf("shard %d is told to be of %q under token %d; the store has it of %q under %d", i, now.Owner, now.Token, before[i].Owner, before[i].Token)
		}
	}
}
