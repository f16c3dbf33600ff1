//go:build unix

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/wire"
)

func txOf(n int) string { return fmt.Sprintf("0x%064x", n) }

// holdStory is what a client does with holds of a signer, and what it is answered. It
// returns how many of its calls go to the owner of the signer.
func holdStory(t *testing.T, c *client.Client, signer string) (writes int) {
	t.Helper()
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s of %s: %v", what, signer, err)
		}
	}
	wantConflict := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, client.ErrConflict) {
			t.Errorf("%s of %s: got %v, want a conflict", what, signer, err)
		}
	}
	a, err := c.Allocate(ctx, client.AllocateRequest{Signer: signer, RecordFirst: true})
	must("allocate", err)
	h := a.Hold()
	e, err := c.Extend(ctx, h, 5*time.Minute)
	if must("extend", err); e.HoldMs != 300_000 || e.Nonce != h.Nonce || e.Attempt != h.Attempt || time.Until(e.Deadline) < 4*time.Minute {
		t.Errorf("extended: %+v", e)
	}
	m, err := c.MarkSigned(ctx, h, txOf(1))
	if must("sign", err); m.Status != wire.StatusHeld || m.TxHash != txOf(1) || m.HeldUntil == nil || m.HoldMs == 0 {
		t.Errorf("signed: %+v", m)
	}
	_, err = c.MarkRecyclable(ctx, h, "")
	wantConflict("a release after a hash was recorded", err)
	m, err = c.MarkUsed(ctx, h, "")
	if must("use", err); m.Status != wire.StatusConsumed || m.TxHash != txOf(1) || m.TxHashes != nil {
		t.Errorf("used: %+v", m)
	}
	for n := 2; n <= 8; n++ {
		m, err = c.MarkUsed(ctx, h, txOf(n))
		must("replace", err)
	}
	if m.Replaced != txOf(7) || len(m.TxHashes) != 8 || m.TxHashes[0] != txOf(8) || m.TxHashes[7] != txOf(1) {
		t.Errorf("replaced seven times: %+v", m)
	}
	_, err = c.MarkUsed(ctx, h, txOf(9))
	wantConflict("a ninth transaction", err)

	r, err := c.Repair(ctx, client.RepairRequest{Signer: signer, Nonce: &h.Nonce, RequestID: "repair", Hold: 2 * time.Minute})
	if must("repair", err); r.Nonce != h.Nonce || r.Attempt != h.Attempt+1 || r.HoldMs != 120_000 || r.Was == nil || r.Was.Status != wire.StatusConsumed || r.Was.Attempt != h.Attempt {
		t.Errorf("repaired: %+v", r.RepairResult)
	}
	if len(r.TxHashes) != 7 || r.TxHashes[0] != txOf(8) { // one is given up for the replacement
		t.Errorf("repaired, with the hashes %v", r.TxHashes)
	}
	again, err := c.Repair(ctx, client.RepairRequest{Signer: signer, Nonce: &h.Nonce, RequestID: "repair", Hold: 2 * time.Minute})
	if must("repeat a repair", err); again.Attempt != r.Attempt || again.Was != nil {
		t.Errorf("repeated: %+v", again.RepairResult)
	}
	_, err = c.MarkUsed(ctx, h, txOf(9))
	wantConflict("a mark of whoever had it before", err)
	m, err = c.MarkUsed(ctx, r.Hold(), txOf(9))
	if must("use after a repair", err); m.Attempt != r.Attempt || m.TxHashes[0] != txOf(9) {
		t.Errorf("used after a repair: %+v", m)
	}
	_, err = c.Repair(ctx, client.RepairRequest{Signer: signer})
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeInvalidParams || e.Data.Field != "nonce" {
		t.Errorf("a repair without a chain: %v", err)
	}
	_, err = c.Extend(ctx, r.Hold(), time.Minute)
	wantConflict("extending what is consumed", err)

	b, err := c.Allocate(ctx, client.AllocateRequest{Signer: signer})
	must("allocate", err)
	_, err = c.MarkSigned(ctx, b.Hold(), txOf(20))
	must("sign", err)
	m, err = c.MarkRecyclable(ctx, b.Hold(), "refused by the node", client.Unsent())
	if must("release what was not sent", err); m.Status != wire.StatusReleased || m.TxHash != "" {
		t.Errorf("released: %+v", m)
	}
	_, err = c.MarkSigned(ctx, b.Hold(), txOf(20))
	wantConflict("a hash for what was given back", err)
	return 23
}

// rowsOf is the list of a signer, a word each.
func rowsOf(t *testing.T, c *client.Client, signer string) string {
	t.Helper()
	page, err := c.List(t.Context(), wire.ListParams{Signer: signer})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, a := range page.Allocations {
		words = append(words, fmt.Sprintf("%d#%d=%s/%d", a.Nonce, a.Attempt, a.Status, len(a.TxHashes)))
	}
	return strings.Join(words, " ")
}

// TestHoldsAreExtendedSignedReplacedAndRepairedFromAnyNode: every call is answered the
// same at the node that owns the signer, at another one that forwards it, and at a
// basic one; and subscribers of all nodes hear the same.
func TestHoldsAreExtendedSignedReplacedAndRepairedFromAnyNode(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b c=basic", "--lease-ttl=10s")
	conns := f.ConnectEach()
	names := e2e.Signers("account", 24)
	at := e2e.Owners(conns["a"], names)
	forwarded := func() float64 { return f.Nodes["a"].Value(`noncegate_forwarded_total{result="answered"}`) }
	const events = "allocated 0#1 extended 0#1 signed 0#1 used 0#1 replaced 0#1 replaced 0#1 replaced 0#1 replaced 0#1 replaced 0#1 " +
		"replaced 0#1 replaced 0#1 allocated 0#2 replaced 0#2 allocated 1#1 signed 1#1 released 1#1"
	for _, c := range []struct{ through, owner string }{{"a", "b"}, {"a", "a"}, {"c", "b"}} {
		t.Run(c.through+" for a signer of "+c.owner, func(t *testing.T) {
			signer := e2e.OwnedBy(at, c.owner)[0]
			at[signer] = "" // used up
			first := conns[c.owner].Allocate(signer, "first")
			if got := conns[c.owner].Call(wire.MethodMarkRecyclable, fmt.Sprintf(`[%q,%d]`, signer, first.Nonce)); got.Error != nil {
				t.Fatal(got.Error)
			}
			floor := first.Nonce + 1 // so that the story begins with a nonce of its own
			if got := conns[c.owner].Call(wire.MethodSetFloor, fmt.Sprintf(`[%q,%d]`, signer, floor)); got.Error != nil {
				t.Fatal(got.Error)
			}
			watchers := []*watcher{watch(f, "a", signer), watch(f, "b", signer), watch(f, "c", signer)}
			before := forwarded()
			via := dial(f, c.through, false)
			writes := holdStory(t, via, signer)
			if got := forwarded() - before; c.through == "a" && c.owner == "b" && got < float64(writes) {
				t.Errorf("%v calls were forwarded, want all %d", got, writes)
			}
			if st := e2e.StatusOf(conns[c.owner], signer); c.through == "a" && st.Owner != c.owner {
				t.Errorf("the signer has moved to %s", st.Owner)
			}
			want := fmt.Sprintf("%d#2=CONSUMED/8 %d#1=RELEASED/0", floor, floor+1)
			for _, name := range f.Names {
				if got := rowsOf(t, dial(f, name, false), signer); !strings.HasSuffix(got, want) {
					t.Errorf("%s shows %s, want %s", name, got, want)
				}
			}
			for i, w := range watchers {
				var got []string
				e2e.Await(t, "the events", func() bool {
					got = nil
					all := w.events()
					slices.SortStableFunc(all, func(a, b client.Event) int { return int(a.Version - b.Version) })
					for _, e := range all {
						got = append(got, fmt.Sprintf("%s %d#%d", e.Type, e.Nonce-floor, e.Attempt))
					}
					return len(got) >= len(strings.Fields(events))/2
				})
				if strings.Join(got, " ") != events {
					t.Errorf("a subscriber of node %d was told\n%s, want\n%s", i, strings.Join(got, " "), events)
				}
			}
		})
	}
	e2e.Consistent(t, f.DB)
}
