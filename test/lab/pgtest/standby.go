//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby makes a physical replica of the server, as pg_basebackup does, and starts it: it follows the server asynchronously,
// answers reads, and may become a primary by Promote. It has the server's databases and password. The caller must Close it.
func (s *Server) Standby() (*Server, error) {
	bin := s.bin
	// initdb and postgres may be links to where the server has its other programs.
	if real, err := filepath.EvalSymlinks(filepath.Join(bin, "initdb")); err == nil {
		bin = filepath.Dir(real)
	}
	replica, err := newServer(bin, s.password)
	if err != nil {
		return nil, err
	}
	if err := replica.follow(s); err != nil {
		return nil, errors.Join(fmt.Errorf("start a standby of PostgreSQL: %w", err), replica.Close())
	}
	return replica, nil
}

func (s *Server) follow(primary *Server) error {
	err := s.run("pg_basebackup", "--pgdata="+s.dataDir(), "--dbname="+primary.URL("postgres"), "--wal-method=stream",
		"--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	if err != nil {
		return err
	}
	return s.startNew(nil)
}

// Follows waits until a standby has replayed all that its primary has committed.
func (s *Server) Follows(ctx context.Context, primary *Server) error {
	var at string
	if err := primary.ask(ctx, &at, `SELECT pg_current_wal_lsn()::text`); err != nil {
		return err
	}
	return s.awaitRow(ctx, `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, at)
}

// Unfollow makes a standby hear nothing more of its primary.
func (s *Server) Unfollow(ctx context.Context) error {
	if err := s.exec(ctx, `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	return s.awaitRow(ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)`)
}

// Promote makes a standby a primary of its own, on a new timeline.
func (s *Server) Promote(ctx context.Context) error {
	if err := s.exec(ctx, `SELECT pg_promote()`); err != nil {
		return err
	}
	return s.awaitRow(ctx, `SELECT NOT pg_is_in_recovery()`)
}

// awaitRow asks until the answer is true.
func (s *Server) awaitRow(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		var yes bool
		if err := s.ask(ctx, &yes, sql, args...); err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", sql, ctx.Err())
		case <-tick.C:
		}
	}
}

// ask reads one value from the database postgres.
func (s *Server) ask(ctx context.Context, into any, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql, args...).Scan(into)
}
