//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// directedFaults are two things in an order that chance brings about too rarely, for
// the planted gateways that show by nothing else. No campaign draws them: each is of
// faults that campaigns do beside one another.
var directedFaults = []Fault{
	{Name: "all-lost-while-postgres-is-away", Engine: true, Loses: true, do: loseAllWhileAway},
	{Name: "drain-while-rows-are-locked", Engine: true, do: drainWhileLocked},
	{Name: "kill-while-rows-are-locked", Engine: true, do: killWhileLocked},
	{Name: "redis-late-scripts", Engine: true, do: lateScripts},
	{Name: "redis-failover-and-back", Engine: true, Loses: true, Replica: true, do: failOverAndBack},
}

// loseAllWhileAway empties Redis and kills the nodes that had it when PostgreSQL has
// been away for nearly a grant: what was handed out meanwhile is in no place but its
// holders' hands, and what they were told must hold.
func loseAllWhileAway(ctx context.Context, b *breaker) error {
	b.note("all are refused by PostgreSQL")
	for _, n := range b.nodes {
		n.db.Refuse()
	}
	lasts(ctx, b.between(engineGrant/3, engineGrant*3/4))
	for _, n := range b.nodes[:2] {
		n.away.Lock()
		defer n.away.Unlock()
		b.note("kill -9 %s", n.ID)
		n.end(syscall.SIGKILL)
	}
	err := emptyRedis(ctx, b)
	for _, n := range b.nodes {
		n.db.Forward()
	}
	b.note("PostgreSQL is back")
	return errors.Join(err, b.restartAll(ctx, b.nodes[:2]))
}

// restartAll starts nodes again, at the same time.
func (b *breaker) restartAll(ctx context.Context, nodes []*Node) error {
	var all errgroup.Group
	for _, n := range nodes {
		all.Go(func() error { return b.restart(ctx, n) })
	}
	return all.Wait()
}

// hotLocked locks the rows of the hot signers, does what is to be done meanwhile, and
// frees them.
func (b *breaker) hotLocked(ctx context.Context, do func() error) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { conn.Close(context.WithoutCancel(ctx)) }()
	names := make([]string, hotSigners)
	for i := range names {
		names[i] = fmt.Sprintf("signer-%02d", i)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT 1 FROM signer_nonce_state WHERE signer = ANY ($1) ORDER BY signer_id FOR UPDATE`, names); err != nil {
			return err
		}
		b.note("somebody locks the rows of the hot signers")
		return do()
	})
	b.note("the rows are free: %v", err)
	return err
}

// drainWhileLocked lets signers return while PostgreSQL cannot follow them.
func drainWhileLocked(ctx context.Context, b *breaker) error {
	defer b.fast.hold()()
	err := b.hotLocked(ctx, func() error {
		lasts(ctx, b.between(50*time.Millisecond, 300*time.Millisecond))
		b.note("drain: %v", b.switchTo(ctx, "drain"))
		lasts(ctx, b.between(600*time.Millisecond, 1200*time.Millisecond)) // every node knows it by then, and wants to
		return nil
	})
	lasts(ctx, b.between(500*time.Millisecond, time.Second))
	return err
}

// killWhileLocked ends both nodes that have Redis and starts them again while
// PostgreSQL cannot follow: what they had not flushed is left to those that come.
func killWhileLocked(ctx context.Context, b *breaker) error {
	return b.hotLocked(ctx, func() error {
		lasts(ctx, b.between(50*time.Millisecond, 300*time.Millisecond))
		for _, n := range b.nodes[:2] {
			n.away.Lock()
			defer n.away.Unlock()
			b.note("kill -9 %s", n.ID)
			n.end(syscall.SIGKILL)
		}
		return b.restartAll(ctx, b.nodes[:2])
	})
}

// lateScripts cuts connections to Redis when a script was sent, which arrives a moment
// later: while the node, under a new token, looks what became of it, or has just looked.
func lateScripts(ctx context.Context, b *breaker) error {
	until, times := time.Now().Add(6*time.Second), 0
	b.note("scripts arrive a moment late")
	for time.Now().Before(until) && ctx.Err() == nil {
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-b.fastNode().redis.CutAnyReply("evalsha", b.between(200*time.Microsecond, 8*time.Millisecond)):
			times++
		case <-timer.C:
		}
		timer.Stop()
		lasts(ctx, b.between(0, 10*time.Millisecond))
	}
	b.note("%d did", times)
	return nil
}

// failOverAndBack leads the nodes to a replica that was promoted, kills them when they
// have worked there, and starts them again at the first server, which knows nothing of
// that, and neither does anybody's memory.
func failOverAndBack(ctx context.Context, b *breaker) error {
	other, err := b.otherRedis(ctx, true)
	if err != nil {
		return err
	}
	lead := func(addr string) {
		for _, n := range b.nodes[:2] {
			n.redis.Retarget(addr)
			n.redis.Drop()
		}
	}
	b.note("the nodes are led to a replica")
	lead(other.Addr())
	lasts(ctx, b.between(300*time.Millisecond, 900*time.Millisecond))
	for _, n := range b.nodes[:2] {
		n.away.Lock()
		defer n.away.Unlock()
		b.note("kill -9 %s", n.ID)
		n.end(syscall.SIGKILL)
	}
	b.note("and back to the first Redis")
	lead(b.fast.server.Addr())
	return b.restartAll(ctx, b.nodes[:2])
}
