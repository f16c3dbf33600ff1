//go:build unix

package torture

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// kill ends a gateway as a crash does.
func kill(ctx context.Context, b *breaker) error {
	n, away := b.victim(), b.ttls(0, 1.5)
	return b.endAndRestart(ctx, n, syscall.SIGKILL, away)
}

// drain ends a gateway in order.
func drain(ctx context.Context, b *breaker) error {
	n, away := b.victim(), b.ttls(0, 1)
	return b.endAndRestart(ctx, n, syscall.SIGTERM, away)
}

func (b *breaker) endAndRestart(ctx context.Context, n *node, sig syscall.Signal, away time.Duration) error {
	n.away.Lock()
	defer n.away.Unlock()
	return b.endAndRestartLocked(ctx, n, sig, away)
}

func (b *breaker) endAndRestartLocked(ctx context.Context, n *node, sig syscall.Signal, away time.Duration) error {
	b.note("%v to %s, back %v after its end in mode %s", sig, n.id, away, n.mode())
	n.end(sig)
	lasts(ctx, away)
	return b.restart(ctx, n)
}

// pause stops a gateway where it stands, for longer than its leases last.
func pause(ctx context.Context, b *breaker) error {
	n, d := b.victim(), b.ttls(1.5, 3)
	return b.pause(ctx, n, d)
}

func (b *breaker) pause(ctx context.Context, n *node, d time.Duration) error {
	b.note("SIGSTOP %s for %v", n.id, d)
	n.signal(syscall.SIGSTOP)
	lasts(ctx, d)
	n.signal(syscall.SIGCONT)
	b.note("SIGCONT %s", n.id)
	return nil
}

// endBackends ends database sessions that are at work, commits among them.
func endBackends(ctx context.Context, b *breaker) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil // another fault has the database down
	}
	defer func() { conn.Close(context.WithoutCancel(ctx)) }()
	until, ended := time.Now().Add(b.ttls(1, 2)), 0
	b.note("end backends that are at work")
	for time.Now().Before(until) && ctx.Err() == nil {
		tag, err := conn.Exec(ctx, `
			SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'noncegate' AND (state = 'active' OR state LIKE 'idle in trans%')`)
		if err != nil {
			break // another fault has the database down
		}
		ended += int(tag.RowsAffected())
		lasts(ctx, b.between(time.Millisecond, 40*time.Millisecond))
	}
	b.note("%d backends were ended", ended)
	return nil
}

// commitOfBasic is in what a node of mode basic sends to commit.
const commitOfBasic = "COMMIT\x00"

// cutReplies loses the replies of commits: they happened, and the node is not told.
func cutReplies(ctx context.Context, b *breaker) error {
	return b.commits(ctx, "lose the replies of commits of", func(n *node) <-chan struct{} {
		return b.cut(n)
	})
}

// lateCommits cuts a connection when a commit was sent, and lets that reach the
// database later, when the node has gone on without it.
func lateCommits(ctx context.Context, b *breaker) error {
	return b.commits(ctx, "commits arrive late of", func(n *node) <-chan struct{} {
		late := b.between(time.Millisecond, 150*time.Millisecond)
		if b.rnd.IntN(2) == 0 {
			late = b.between(100*time.Microsecond, 4*time.Millisecond) // while the node looks what became of it
		}
		return b.late(n, late)
	})
}

// cut and late lose the reply of a node's next commit, or let it arrive late.
func (b *breaker) cut(n *node) <-chan struct{} {
	if n.basic.Load() {
		return n.db.CutReplies(commitOfBasic)
	}
	return n.db.CutStatement(shardCommit)
}

func (b *breaker) late(n *node, by time.Duration) <-chan struct{} {
	if n.basic.Load() {
		return n.db.DelayRequest(commitOfBasic, by)
	}
	return n.db.DelayStatement(shardCommit, by)
}

// commits does something to commits of one or all nodes, one after the other.
func (b *breaker) commits(ctx context.Context, what string, arm func(*node) <-chan struct{}) error {
	n, all, d := b.victim(), b.rnd.IntN(2) == 0, b.ttls(1.5, 3)
	b.note("%s %s, all nodes: %v", what, n.id, all)
	times := b.again(ctx, d, 200*time.Millisecond, 30*time.Millisecond, func(int) <-chan struct{} {
		if all {
			n = b.nodes[b.rnd.IntN(len(b.nodes))]
		}
		return arm(n)
	})
	b.note("it was done to %d commits", times)
	return nil
}

// again arms a proxy one time after the other, for a while, each with a pause of at most
// rest behind it. What was armed has a time of patience to happen: nothing may be sent, or
// the server may be away. arm is told how often it happened so far, which again returns.
func (b *breaker) again(ctx context.Context, d, patience, rest time.Duration, arm func(times int) <-chan struct{}) (times int) {
	for until := time.Now().Add(d); time.Now().Before(until) && ctx.Err() == nil; {
		timer := time.NewTimer(patience)
		select {
		case <-arm(times):
			times++
		case <-timer.C:
		}
		timer.Stop()
		lasts(ctx, b.between(0, rest))
	}
	return times
}

// crashPostgres ends the database as a crash does and starts it again.
func crashPostgres(ctx context.Context, b *breaker) error {
	away := b.between(0, 1200*time.Millisecond)
	b.note("PostgreSQL crashes, back after %v", away)
	if err := b.pg.Kill(); err != nil {
		return err
	}
	lasts(ctx, away)
	err := b.pg.Restart()
	b.note("PostgreSQL is up again")
	return err
}

// partition cuts one node off from the database for longer than its leases last: in
// silence, and what was sent arrives in the end, or by refusing.
func partition(ctx context.Context, b *breaker) error {
	n, d := b.victim(), b.ttls(1.2, 2.5)
	if b.rnd.IntN(4) == 0 {
		b.note("%s is refused by the database for %v", n.id, d)
		n.db.Refuse()
	} else {
		b.note("%s hears nothing from the database for %v", n.id, d)
		n.db.BlackHole()
	}
	lasts(ctx, d)
	n.db.Forward()
	b.note("%s is back at the database", n.id)
	return nil
}

// silence keeps everything between one node and its clients and the other nodes
// from passing, for a while.
func silence(ctx context.Context, b *breaker) error {
	n, d := b.victim(), b.ttls(0.5, 2)
	b.note("nobody hears from %s for %v", n.id, d)
	n.net.BlackHole()
	lasts(ctx, d)
	n.net.Forward()
	b.note("%s is heard again", n.id)
	return nil
}

// lockRows locks the rows of two signers, or of their shards, from outside, for longer than a lease lasts.
func lockRows(ctx context.Context, b *breaker) error {
	d := b.ttls(1.2, 2.2)
	one, two := b.rnd.IntN(hotSigners), hotSigners+b.rnd.IntN(signers-hotSigners)
	lock, what := lockSigners, "rows"
	if b.rnd.IntN(3) == 0 {
		lock, what = lockShards, "shards"
	}
	b.note("somebody locks the %s of signers %d and %d for %v", what, one, two, d)
	conn, err := b.connect(ctx)
	if err != nil {
		return nil // another fault has the database down
	}
	defer func() { conn.Close(context.WithoutCancel(ctx)) }()
	names := []string{fmt.Sprintf("signer-%02d", one), fmt.Sprintf("signer-%02d", two)}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lock, names); err != nil {
			return err
		}
		lasts(ctx, d)
		return nil
	})
	b.note("the %s are free: %v", what, err)
	return nil
}

// cutWebSockets ends connections between request and answer: those of all clients
// of a node at once, and some single ones just after they asked.
func cutWebSockets(ctx context.Context, b *breaker) error {
	until, times := time.Now().Add(b.ttls(1.5, 3)), 0
	b.note("connections to the nodes are cut")
	b.load.cutting.Store(true)
	for time.Now().Before(until) && ctx.Err() == nil {
		n := b.nodes[b.rnd.IntN(len(b.nodes))]
		n.net.Refuse()
		n.net.Forward()
		times++
		lasts(ctx, b.between(20*time.Millisecond, 300*time.Millisecond))
	}
	b.load.cutting.Store(false)
	b.note("they were cut %d times", times)
	return nil
}
