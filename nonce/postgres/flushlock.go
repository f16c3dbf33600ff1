package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

// flushLock is a session beside the pool, whose advisory locks are those of flush
// shards. It has no goroutine: each use of it finds out whether it lasts.
type flushLock struct {
	conn *pgx.Conn
	held map[int]bool
}

// The keys of the locks: the schema of the tables, so that two gateways may share a
// database, and the shard.
const (
	tryShardText     = `SELECT pg_try_advisory_lock(hashtext('noncegate flush ' || current_schema()), $1)`
	releaseShardText = `SELECT pg_advisory_unlock(hashtext('noncegate flush ' || current_schema()), $1)`
)

// errLockLost: the session is over, or gave no answer, so that its locks may be
// another's.
var errLockLost = errors.New("the session that held the locks of flush shards is over")

// FlushLock implements nonce.EngineCatalog. The server notices within half a minute
// that the machine of a holder is gone, and at once that its process is.
func (s *Store) FlushLock(ctx context.Context) (nonce.FlushLock, error) {
	cc := s.pool.Config().ConnConfig.Copy()
	for k, v := range map[string]string{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"} {
		cc.RuntimeParams[k] = v
	}
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, notSent("open a session for the locks of flush shards", err)
	}
	return &flushLock{conn: conn, held: make(map[int]bool)}, nil
}

// TryShard implements nonce.FlushLock. A lock that is held is not taken twice: the
// server counts.
func (l *flushLock) TryShard(ctx context.Context, shard int) (bool, error) {
	if l.held[shard] {
		return true, l.Alive(ctx)
	}
	var got bool
	if err := l.conn.QueryRow(ctx, tryShardText, shard).Scan(&got); err != nil {
		return false, l.lost(err)
	}
	l.held[shard] = got
	return got, nil
}

// ReleaseShard implements nonce.FlushLock.
func (l *flushLock) ReleaseShard(ctx context.Context, shard int) error {
	if !l.held[shard] {
		return nil
	}
	delete(l.held, shard)
	if _, err := l.conn.Exec(ctx, releaseShardText, shard); err != nil {
		return l.lost(err)
	}
	return nil
}

// Alive implements nonce.FlushLock.
func (l *flushLock) Alive(ctx context.Context) error {
	if err := l.conn.Ping(ctx); err != nil {
		return l.lost(err)
	}
	return nil
}

// lost ends the session, so that its locks are free for others.
func (l *flushLock) lost(err error) error {
	_ = l.Close()
	return errors.Join(errLockLost, err)
}

// Close implements nonce.FlushLock.
func (l *flushLock) Close() error {
	clear(l.held)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return l.conn.Close(ctx) // nil when it is closed already
}
