//go:build unix

package torture

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"noncegate/test/lab/history"
)

// Fault is something that goes wrong in a run and is healed again within it: a row that says
// what it needs, what it may cause, and what does it.
type Fault struct {
	Name string
	What string // for people

	// Engine, Chain and File say that it is of such an axis alone; the others can have each fault that needs none.
	Engine, Chain, File bool
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
	// Spares is how many more nodes it starts.
	Spares int

	// Loses says that Redis may be out of reach because of it until it counts as lost, and
	// Forgets that it does not have any more what it had, or is another one.
	Loses, Forgets bool
	// Overdue is for how much longer a hold may be overdue because of it.
	Overdue time.Duration

	// do breaks something and heals it; nil for what is wrong from the start.
	do func(ctx context.Context, b *breaker) error
}

// faults are all there are. Campaigns number those of an axis in this order.
var faults = append(diskFaults(), []Fault{
	{Name: "kill", What: "a gateway ends by SIGKILL and is started again", do: ends(syscall.SIGKILL, 1.5)},
	{Name: "pause", What: "a gateway stands still for longer than its leases last", do: pause},
	{Name: "backend", What: "database sessions that are at work are ended", do: endBackends},
	{Name: "cut-reply", What: "commits happen, and their replies are lost", do: cutReplies},
	{Name: "late-commit", What: "commits reach the database when their node has gone on without them", do: lateCommits},
	{Name: "postgres-crash", What: "PostgreSQL is killed and started again", do: crashPostgres},
	{Name: "partition", What: "a gateway does not reach the database", do: partition},
	{Name: "row-lock", What: "somebody else locks rows of signers or shards", do: lockRows},
	{Name: "cut-websocket", What: "connections of clients end between request and answer", do: cutWebSockets},
	{Name: "wrong-clock", What: "the gateways' clocks are wrong by two leases", Offsets: true},
	{Name: "drain", What: "a gateway ends by SIGTERM and is started again", do: ends(syscall.SIGTERM, 1)},
	{Name: "silent-node", What: "a gateway is not heard by clients and nodes", do: silence},
	// Sweeps pause for the longest hold after each step, and what was held by a clock that was
	// behind is overdue at once when it is right again. How long a grant runs is told by that clock.
	{Name: "store-clock", What: "the store's clock jumps", NoEngine: true, Overdue: maxStep + maxHold, do: stepClock},
	{Name: "basic-again", What: "a gateway comes back in mode basic, and later as it was", do: comeBackBasic},
	{Name: "move-shards", What: "shards are pinned here and there", do: moveShards},
	{Name: "join-leave", What: "further gateways come and go", Spares: len(spares), do: joinAndLeave},
	{Name: "dump", What: "the database is dumped and vacuumed", do: dump},

	{Name: "redis-kill", What: "Redis is killed and started again", Engine: true, Forgets: true, do: killRedis},
	{Name: "redis-empty", What: "FLUSHALL", Engine: true, Forgets: true, do: emptyRedis},
	{Name: "redis-back", What: "Redis forgets its last writes", Engine: true, Forgets: true, do: setRedisBack},
	{Name: "redis-other", What: "gateways are led to another, empty Redis", Engine: true, Forgets: true, do: leadElsewhere(false)},
	{Name: "redis-failover", What: "gateways are led to a replica", Engine: true, Forgets: true, Replica: true, do: leadElsewhere(true)},
	{Name: "redis-pause", What: "Redis stands still", Engine: true, Loses: true, do: pauseRedis},
	{Name: "redis-slow", What: "answers of Redis come late", Engine: true, Loses: true, do: slowRedis},
	{Name: "redis-full", What: "Redis is out of memory", Engine: true, Loses: true, do: fillRedis},
	{Name: "redis-cut-reply", What: "answers of Redis are lost, or scripts arrive late", Engine: true, Loses: true, do: cutRedisReplies},
	{Name: "redis-partition", What: "gateways do not reach Redis", Engine: true, Loses: true, do: partitionRedis},
	{Name: "postgres-away", What: "no gateway reaches PostgreSQL", Engine: true, do: awayPostgres},
	{Name: "both-away", What: "no gateway reaches PostgreSQL or Redis", Engine: true, Loses: true, do: awayBoth},
	{Name: "parted", What: "one gateway has Redis alone, the other PostgreSQL alone", Engine: true, Loses: true, do: part},
	{Name: "long-pause", What: "a gateway stands still for longer than lease and grant", Engine: true, do: pauseLong},
	{Name: "switch", What: "the engine is switched back and forth", Engine: true, do: switchBackAndForth},

	{Name: "nodes-away", What: "the chain's nodes refuse everything", Chain: true, do: nodesAway},
	{Name: "node-behind", What: "a node of the chain tells old blocks, and the other is away", Chain: true, do: nodeBehind},

	{Name: "all-lost-while-postgres-is-away", Directed: true, Engine: true, Forgets: true, do: loseAllWhileAway},
	{Name: "all-lost-after-the-switch", Directed: true, Engine: true, Forgets: true, Down: true, do: loseAllAfterSwitch},
	{Name: "drain-while-rows-are-locked", Directed: true, Engine: true, do: drainWhileLocked},
	{Name: "kill-while-rows-are-locked", Directed: true, Engine: true, do: killWhileLocked},
	{Name: "redis-late-scripts", Directed: true, Engine: true, Loses: true, do: lateScripts},
	{Name: "redis-failover-and-back", Directed: true, Engine: true, Forgets: true, Replica: true, do: failOverAndBack},
	{Name: "owner-without-postgres", Directed: true, Engine: true, do: ownerWithoutPostgres},
	{Name: "parted-for-long", Directed: true, Engine: true, Loses: true, do: partForLong},
	{Name: "late-commits", Directed: true, do: manyLateCommits},
	{Name: "failed-sync-and-power-loss", Directed: true, File: true, do: failSyncAndLosePower},
	{Name: "store-clock-back", Directed: true, Overdue: clockBackSteps*maxStep + maxHold, do: stepClockBack},
	{Name: "late-commits-while-rows-are-locked", Directed: true, do: lateCommitsWhileLocked},
}...)

// FaultsNamed finds faults by name.
func FaultsNamed(names ...string) ([]Fault, error) {
	var found []Fault
	for _, name := range names {
		i := slices.IndexFunc(faults, func(f Fault) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no fault %q", name)
		}
		found = append(found, faults[i])
	}
	return found, nil
}

// WriteFaults writes a table of the faults.
func WriteFaults(w io.Writer) {
	fmt.Fprintf(w, "| fault | of | what happens |\n|---|---|---|\n")
	for _, f := range faults {
		of := Axes[slices.IndexFunc(Axes, func(a Axis) bool { return a.Engine == f.Engine && a.Chain == f.Chain && a.File == f.File })].Name
		if !f.Directed {
			fmt.Fprintf(w, "| %s | %s | %s |\n", f.Name, of, f.What)
		}
	}
}

// breaker is what a fault works with: the cluster, the run's randomness and a place to say what it did.
type breaker struct {
	*cluster
	load  *workload
	rnd   *rand.Rand
	began time.Time

	mu   *sync.Mutex // guards said, which all faults of a run share
	said *[]string

	shifts *[]history.Shift // of the store's clock; only the fault that sets it has it
}

// note writes down what is done now.
func (b *breaker) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.said = append(*b.said, fmt.Sprintf("%8v ", time.Since(b.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// between is a random time from least to most.
func (b *breaker) between(least, most time.Duration) time.Duration {
	return least + time.Duration(b.rnd.Int64N(int64(most-least)+1))
}

// ttls is a random time from least to most lease lengths.
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
