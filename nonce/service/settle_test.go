package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
)

// fates are what becomes of the signer between a commit that broke and its settling. They
// return what they were given, and how often they wrote.
var fates = map[string]func(t *testing.T, d *disk, other, basic *node) (given []string, writes int64){
	"kept": func(*testing.T, *disk, *node, *node) ([]string, int64) { return nil, 0 },
	"basic wrote": func(t *testing.T, d *disk, _, basic *node) ([]string, int64) {
		return []string{basic.run("allocate")}, 1
	},
	"basic wrote twice": func(t *testing.T, d *disk, _, basic *node) ([]string, int64) {
		return []string{basic.run("allocate"), basic.run("allocate")}, 2
	},
	"lost": func(t *testing.T, d *disk, other, _ *node) ([]string, int64) {
		d.give(signer, other)
		return nil, 0
	},
	"lost, and the other wrote": func(t *testing.T, d *disk, other, _ *node) ([]string, int64) {
		d.give(signer, other)
		return []string{other.run("allocate")}, 1
	},
	"lost, and both wrote": func(t *testing.T, d *disk, other, basic *node) ([]string, int64) {
		d.give(signer, other)
		return []string{other.run("allocate"), basic.run("allocate")}, 2
	},
	"given back": func(t *testing.T, d *disk, _, _ *node) ([]string, int64) {
		d.takeAway(signer)
		return nil, 0
	},
	"given back, after the other wrote": func(t *testing.T, d *disk, other, _ *node) ([]string, int64) {
		d.give(signer, other)
		given := []string{other.run("allocate")}
		d.takeAway(signer)
		return given, 1
	},
}

// TestTheOutcomeOfABrokenCommitIsToldTrue: it happened, it did not, or it arrives before it is
// settled or after, and something becomes of the signer meanwhile.
func TestTheOutcomeOfABrokenCommitIsToldTrue(t *testing.T) {
	for name, fate := range fates {
		for _, when := range []string{"happened", "lost", "late", "later"} {
			eachUnknown(t, func(t *testing.T, n *node, i int) {
				t.Run(name+"/"+when, func(t *testing.T) {
					b := &broken{t: t, d: n.disk, n: n, other: start(t, n.disk, "b"), basic: start(t, n.disk, "c", basicMode), fate: fate}
					u, got := unknowns[i], b.run(unknowns[i].op, when)
					if name == "lost" && when != "happened" {
						if got != "fenced" {
							t.Errorf("told %q, and another node has the shard", got)
						}
						return
					}
					if name == "kept" || name == "lost" { // all is known then
						if rows, events := n.disk.rows(t, signer), n.events.String(); got != u.want || rows != u.rows || events != u.event {
							t.Errorf("told %q, with the rows %s and the events %q; want %q, %s and %q", got, rows, events, u.want, u.rows, u.event)
						}
					}
				})
			})
		}
	}
}

// broken is a commit that breaks, and what is known of the truth.
type broken struct {
	t               *testing.T
	d               *disk
	n, other, basic *node
	fate            func(t *testing.T, d *disk, other, basic *node) ([]string, int64)
	given           []string // nonces and attempts that were told to somebody
	writes          int64    // of others
	commit          memstore.Call
}

func (b *broken) run(op, when string) (told string) {
	for _, r := range strings.Fields(b.d.rows(b.t, signer)) {
		held, _, _ := strings.Cut(r, "=")
		b.given = append(b.given, held)
	}
	before := b.d.summary(b.t, signer).Version
	act := func(c memstore.Call) error {
		b.d.onBefore(nil)
		b.d.onAfter(nil)
		b.commit = c
		given, writes := b.fate(b.t, b.d, b.other, b.basic)
		b.given, b.writes = append(b.given, given...), writes
		if when == "late" {
			b.arrive()
		}
		return errCut
	}
	if when == "happened" {
		b.d.onAfter(once(memstore.OpCommit, signer, act))
	} else {
		b.d.onBefore(once(memstore.OpCommit, signer, act))
	}
	asked := parse(b.t, op)
	got := b.n.do(asked)
	b.given = append(b.given, given(asked)...)
	if b.commit.Op == "" {
		b.t.Fatal("no commit broke")
	}
	if when == "later" && b.arrive() {
		b.t.Error("the store took the commit after it was settled")
	}
	b.check(asked, got, b.d.summary(b.t, signer).Version-before-b.writes)
	return got
}

// given are the nonces and attempts that an op was told.
func given(op *noncetest.Op) (out []string) {
	if op.Err != nil {
		return nil
	}
	for i, nr := range op.Nonces {
		out = append(out, fmt.Sprintf("%d#%d", nr, op.Attempts[i]))
	}
	if op.Kind == nonce.KindMarkSigned {
		out = append(out, fmt.Sprintf("%d#%d", op.Nonce, op.Result.Attempt))
	}
	return out
}

// arrive has the store see the commit late.
func (b *broken) arrive() bool {
	res, err := b.d.Commit(b.t.Context(), b.commit.Holder, b.commit.Writes)
	if err != nil {
		b.t.Fatal(err)
	}
	return slices.Contains(res.Results, nonce.Applied)
}

// check compares what was told with the rows. own is how often the node wrote.
func (b *broken) check(op *noncetest.Op, got string, own int64) {
	known := op.RequestID != "" && strings.HasPrefix(got, "conflict") // which does not mean that nothing happened
	switch {
	case got == "unknown" || known:
	case op.Err == nil && own != 1:
		b.t.Errorf("told %q, and written %d times", got, own)
	case op.Err != nil && own != 0:
		b.t.Errorf("told %q, and written %d times", got, own)
	}
	if own < 0 || own > 1 {
		b.t.Errorf("written %d times", own)
	}
	seen := make(map[string]int)
	for _, g := range b.given {
		seen[g]++
	}
	for _, r := range strings.Fields(b.d.rows(b.t, signer)) {
		if held, state, _ := strings.Cut(r, "="); strings.HasPrefix(state, "HELD") && seen[held] == 0 && got != "unknown" {
			b.t.Errorf("%s is held, and nobody was told; told %q", held, got)
		}
	}
	for g, times := range seen {
		if times > 1 && op.Kind != nonce.KindMarkSigned {
			b.t.Errorf("%s was given %d times", g, times)
		}
	}
}
