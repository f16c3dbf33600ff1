package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// ways are the ways of running the ops of a script.
var ways = []struct {
	name string
	run  func(t *testing.T, d *disk, ops []string) []string
}{
	{"basic", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", basicMode, maxHolds(noncetest.MaxHolds)), ops, func() {})
	}},
	{"worker", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", maxHolds(noncetest.MaxHolds)), ops, func() {})
	}},
	{"callerRuns", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", callerRuns, slots(1), maxHolds(noncetest.MaxHolds)), ops, func() {})
	}},
	{"workerWithoutMemory", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", maxHolds(noncetest.MaxHolds), func(c *service.Config) { c.MaxSigners, c.MaxSignerBytes = 1, 1 }), ops, func() {})
	}},
	{"workerThatForgets", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", maxHolds(noncetest.MaxHolds)), ops, d.RaiseGeneration)
	}},
	{"workerThatLosesItsShards", func(t *testing.T, d *disk, ops []string) []string {
		n := start(t, d, "a", maxHolds(noncetest.MaxHolds))
		return serially(n, ops, func() { d.loseAll(n) })
	}},
	{"workerBesideBasic", func(t *testing.T, d *disk, ops []string) []string {
		nodes := []*node{start(t, d, "a", maxHolds(noncetest.MaxHolds)), start(t, d, "b", basicMode, maxHolds(noncetest.MaxHolds))}
		var out []string
		for i, op := range ops {
			out = append(out, nodes[i%2].run(op))
		}
		return out
	}},
	{"oneBatch", func(t *testing.T, d *disk, ops []string) []string {
		return start(t, d, "a", maxHolds(noncetest.MaxHolds)).batch(parseAll(t, ops)...)
	}},
	{"batchesBesideBasic", func(t *testing.T, d *disk, ops []string) []string {
		worker, basic := start(t, d, "a", maxHolds(noncetest.MaxHolds)), start(t, d, "b", basicMode, maxHolds(noncetest.MaxHolds))
		var out []string
		for i := 0; len(ops) > 0; i++ {
			n := min(4, len(ops))
			if i%2 == 0 {
				out = append(out, worker.batch(parseAll(t, ops[:n])...)...)
			} else {
				out = append(out, serially(basic, ops[:n], func() {})...)
			}
			ops = ops[n:]
		}
		return out
	}},
}

func parseAll(t *testing.T, ops []string) []*noncetest.Op {
	out := make([]*noncetest.Op, len(ops))
	for i, op := range ops {
		out[i] = parse(t, op)
	}
	return out
}

func serially(n *node, ops []string, between func()) []string {
	var out []string
	for _, op := range ops {
		out = append(out, n.run(op))
		between()
	}
	return out
}

// loseAll gives the node's shards back beneath it, and has it notice.
func (d *disk) loseAll(n *node) {
	for _, o := range n.Shards() {
		if o.Mine {
			name := d.nameIn(o.Shard)
			d.takeAway(name)
			n.run("used 99#99 signer=" + name)
		}
	}
}

func TestTheRulesOfAnAllocationInEveryWayOfRunningOps(t *testing.T) {
	for _, rule := range noncetest.Rules() {
		ops, want := lines(rule.Script)
		for _, way := range ways {
			t.Run(rule.Name+"/"+way.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := way.run(t, newDisk(), ops)
					for i := range ops {
						if got[i] != want[i] {
							t.Errorf("%s: got %q, want %q", ops[i], got[i], want[i])
						}
					}
				})
			})
		}
	}
}

// inBothModes runs test in a bubble of fake time, against each mode.
func inBothModes(t *testing.T, test func(t *testing.T, n *node), change ...func(*service.Config)) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, start(t, newDisk(), "a", append(change, mode)...)) })
		})
	}
}

func TestAnAllocateSaysHowLongItsHoldLasts(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		first, again := parse(t, "allocate hold=5s id=a"), parse(t, "allocate hold=5s id=a")
		n.do(first)
		about := func(got, want time.Duration) bool { return got >= want-20*time.Millisecond && got <= want }
		if left := first.HeldUntil.Sub(n.disk.clock()); !about(first.HoldLeft, 5*time.Second) || left < 5*time.Second || left > 5*time.Second+20*time.Millisecond {
			t.Errorf("got %v, and until in %v, want 5s and no less", first.HoldLeft, left)
		}
		time.Sleep(2 * time.Second)
		n.do(again)
		if !about(again.HoldLeft, 3*time.Second) || !again.HeldUntil.Equal(first.HeldUntil) || again.Token != first.Token {
			t.Errorf("the repeat: got %v until %v under token %d, want 3s until %v under %d",
				again.HoldLeft, again.HeldUntil, again.Token, first.HeldUntil, first.Token)
		}
		byDefault := parse(t, "allocate")
		if n.do(byDefault); byDefault.HoldLeft != n.cfg.Rules.DefaultHold {
			t.Errorf("without hold: got %v, want %v", byDefault.HoldLeft, n.cfg.Rules.DefaultHold)
		}
	})
}
