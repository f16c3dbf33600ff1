//go:build unix

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"noncegate/test/lab/guarded"
)

// Fault is something that goes wrong in a run and is healed again within it: a row that says
// what it needs, what it may cause, and what does it.
type Fault struct {
	Name string
	// Of names the only axis that has it; "": postgres, engine and chain have it.
	Of string
	// NoEngine says that it is not beside the performance engine.
	NoEngine bool
	// Directed says that no campaign draws it: it is two faults in an order that chance brings
	// about too rarely, for the planted gateways that show by nothing else.
	Directed bool
	// Offsets says that the nodes' wall clocks are wrong for the whole run.
	Offsets bool
	// Replica says that Redis has one from the start: the first that is attached later
	// makes Redis begin another history, which is a loss by itself.
	Replica bool
	// Down says that it switches up itself: nothing was handed out from a log before.
	Down bool
	// Spares says that it starts further nodes.
	Spares bool
	// SetsBack says that the store loses what it had confirmed, which gateways are to notice.
	SetsBack bool

	// Loses says that Redis may be out of reach because of it until it counts as lost, and
	// Forgets that it does not have any more what it had, or is another one.
	Loses, Forgets bool
	// Overdue is for how much longer a hold may be overdue because of it.
	Overdue time.Duration

	// do breaks something and heals it, and returns only errors of the run itself; nil for what is wrong from the start.
	do func(ctx context.Context, b *breaker) error
}

// faults are all there are; the rows of the axes sqlite and patroni are in fault_disk.go and fault_failover.go. Campaigns number those
// of an axis in this order.
var faults = slices.Concat(diskFaults(), failoverFaults(), []Fault{
	{Name: "kill", do: ends(syscall.SIGKILL, 1.5)},
	{Name: "pause", do: pause},
	{Name: "backend", do: endBackends},
	{Name: "cut-reply", do: cutReplies},
	{Name: "late-commit", do: lateCommits},
	{Name: "postgres-crash", do: crash("PostgreSQL", 1200*time.Millisecond, func(b *breaker) *guarded.Server { return b.Postgres.Server })},
	{Name: "partition", do: partition},
	{Name: "row-lock", do: lockRows},
	{Name: "cut-websocket", do: cutWebSockets},
	{Name: "wrong-clock", Offsets: true},
	{Name: "drain", do: ends(syscall.SIGTERM, 1)},
	{Name: "silent-node", do: silence},
	// Sweeps pause for the longest hold after each step, and what was held by a clock that was
	// behind is overdue at once when it is right again. How long a grant runs is told by that clock.
	{Name: "store-clock", NoEngine: true, Overdue: maxStep + maxHold, do: stepClock},
	{Name: "basic-again", do: comeBackBasic},
	{Name: "move-shards", do: moveShards},
	{Name: "join-leave", Spares: true, do: joinAndLeave},
	{Name: "dump", do: dump},
	{Name: "postgres-slow", do: slowPostgres},

	{Name: "redis-kill", Of: "engine", Forgets: true, do: crash("Redis", 2500*time.Millisecond, func(b *breaker) *guarded.Server { return b.engineRedis.server.Server })},
	{Name: "redis-empty", Of: "engine", Forgets: true, do: emptyRedis},
	{Name: "redis-back", Of: "engine", Forgets: true, do: setRedisBack},
	{Name: "redis-other", Of: "engine", Forgets: true, do: leadElsewhere(false)},
	{Name: "redis-failover", Of: "engine", Forgets: true, Replica: true, do: leadElsewhere(true)},
	{Name: "redis-pause", Of: "engine", Loses: true, do: pauseRedis},
	{Name: "redis-slow", Of: "engine", Loses: true, do: slowRedis},
	{Name: "redis-full", Of: "engine", Loses: true, do: fillRedis},
	{Name: "redis-cut-reply", Of: "engine", Loses: true, do: many(1.5, 3, time.Second, 60*time.Millisecond, cutRedisReplies)},
	{Name: "redis-partition", Of: "engine", Loses: true, do: partitionRedis},
	{Name: "postgres-away", Of: "engine", do: awayPostgres},
	{Name: "both-away", Of: "engine", Loses: true, do: awayBoth},
	{Name: "parted", Of: "engine", Loses: true, do: partNodes},
	{Name: "long-pause", Of: "engine", do: pauseLong},
	{Name: "switch", Of: "engine", do: switchBackAndForth},

	{Name: "nodes-away", Of: "chain", do: nodesAway},
	{Name: "node-behind", Of: "chain", do: nodeBehind},

	{Name: "all-lost-while-postgres-is-away", Directed: true, Of: "engine", Forgets: true, do: loseAllWhileAway},
	{Name: "all-lost-after-the-switch", Directed: true, Of: "engine", Forgets: true, Down: true, do: loseAllAfterSwitch},
	{Name: "drain-while-rows-are-locked", Directed: true, Of: "engine", do: drainWhileLocked},
	{Name: "kill-while-rows-are-locked", Directed: true, Of: "engine", do: killWhileLocked},
	{Name: "redis-late-scripts", Directed: true, Of: "engine", Loses: true, do: many(6, 6, 200*time.Millisecond, 10*time.Millisecond, lateScripts)},
	{Name: "redis-failover-and-back", Directed: true, Of: "engine", Forgets: true, Replica: true, do: failOverAndBack},
	{Name: "owner-without-postgres", Directed: true, Of: "engine", do: ownerWithoutPostgres},
	{Name: "parted-for-long", Directed: true, Of: "engine", Loses: true, do: partForLong},
	{Name: "late-commits", Directed: true, do: many(8, 8, 200*time.Millisecond, 10*time.Millisecond, manyLateCommits)},
	{Name: "failed-sync-and-power-loss", Directed: true, Of: "sqlite", do: failSyncAndLosePower},
	{Name: "store-clock-back", Directed: true, Overdue: clockBackSteps*maxStep + maxHold, do: stepClockBack},
	{Name: "late-commits-while-rows-are-locked", Directed: true, do: lateCommitsWhileLocked},
	{Name: "fenced-while-pipelined", Directed: true, do: fenceWhilePipelined},
	{Name: "late-link", Directed: true, do: lateLink},
})

// FaultsNamed finds faults by name. Its error lists the names that there are.
func FaultsNamed(wanted ...string) ([]Fault, error) {
	var found []Fault
	for _, name := range wanted {
		i := slices.IndexFunc(faults, func(f Fault) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no fault %q, but %s", name, strings.ReplaceAll(names(faults), "+", ", "))
		}
		found = append(found, faults[i])
	}
	return found, nil
}

func names(faults []Fault) string {
	all := make([]string, len(faults))
	for i := range faults {
		all[i] = faults[i].Name
	}
	return strings.Join(all, "+")
}

// breaker is what a fault works with: the cluster, chance of its own and a place to say what it does. Which node has which index, members
// says; victim, fastNode and oneOrBoth draw some. endAndRestart ends a node; part and parted cut it off (db, net and redis are its
// proxies); commits loses the replies of its commits, or has these arrive late; locked locks rows from outside. between and ttls draw how
// long that lasts.
type breaker struct {
	*cluster
	rnd *rand.Rand
}

func (b *breaker) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.h.Faults = append(b.h.Faults, fmt.Sprintf("%8v ", time.Since(b.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (b *breaker) between(least, most time.Duration) time.Duration {
	return least + time.Duration(b.rnd.Int64N(int64(most-least)+1))
}

func (b *breaker) ttls(least, most float64) time.Duration {
	return b.between(time.Duration(least*float64(leaseTTL)), time.Duration(most*float64(leaseTTL)))
}

// victim is a node; those of mode worker-queue are taken more often, for they have more to lose.
func (b *breaker) victim() *node {
	if b.rnd.IntN(5) == 0 {
		return b.nodes[2]
	}
	return b.nodes[b.rnd.IntN(2)]
}

// fastNode is a node of mode worker-queue, which has Redis if there is one; oneOrBoth are one or, of three times once, both.
func (b *breaker) fastNode() *node { return b.nodes[b.rnd.IntN(2)] }

func (b *breaker) oneOrBoth() []*node {
	if i := b.rnd.IntN(3); i < 2 {
		return b.nodes[i : i+1]
	}
	return b.nodes[:2]
}

// repeat does something for a while, with the pauses that it returns.
func (b *breaker) repeat(ctx context.Context, d time.Duration, do func() (rest time.Duration)) {
	for until := time.Now().Add(d); time.Now().Before(until) && ctx.Err() == nil; {
		lasts(ctx, do())
	}
}

// lasts waits: a fault lasts for as long as it was drawn to.
func lasts(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// tries does something again and again until it succeeds, and returns its last error when it has no more time or ctx ends.
func tries(ctx context.Context, patience, pause time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return guarded.Retry(ctx, pause, do)
}

// noRedis is what a gateway says that does not start because of Redis.
const noRedis = "--redis cannot be used"

// restart starts a node again, also when the run is being given up; again and again, as
// a supervisor does, while another fault keeps it from Redis.
func (b *breaker) restart(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	err := n.start(ctx)
	for err != nil && strings.Contains(err.Error(), noRedis) && ctx.Err() == nil {
		b.note("%s does not start without Redis", n.id)
		lasts(ctx, 20*poll)
		err = n.start(ctx)
	}
	b.note("%s is up again", n.id)
	return err
}
