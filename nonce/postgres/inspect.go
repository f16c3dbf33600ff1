package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// inspect looks at every new connection: the server may have become another one, and there
// may be a pooler in between. Its statements are not prepared by name, which some poolers
// cannot carry.
func (s *Store) inspect(ctx context.Context, conn *pgx.Conn) error {
	var fsync, syncCommit, system, databaseID string
	var backend int32
	err := conn.QueryRow(ctx, `
		SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_backend_pid(),
		       (SELECT system_identifier::text FROM pg_control_system()),
		       (SELECT system_identifier::text FROM pg_control_system()) || '/' ||
		       (SELECT oid::text FROM pg_database WHERE datname = current_database()) || '/' || coalesce(current_schema(), '')`, pgx.QueryExecModeExec).
		Scan(&fsync, &syncCommit, &backend, &system, &databaseID)
	if err != nil {
		return fmt.Errorf("read the server's identity: %w", err)
	}
	if fsync != "on" {
		return ErrFsyncOff
	}
	if err := s.checkSettings(ctx, conn); err != nil {
		return err
	}
	if syncCommit == "off" || syncCommit == "local" {
		return fmt.Errorf("synchronous_commit is %s on a new connection, although on was asked for", syncCommit)
	}
	timeline, err := s.timeline(ctx, conn)
	if err != nil {
		return fmt.Errorf("read the server's timeline: %w", err)
	}
	if err := s.remember(conn, backend); err != nil {
		return err
	}
	s.identify(conn, system+"/"+timeline, databaseID)
	return nil
}

// identify compares which database a new connection is to with that of the last one.
func (s *Store) identify(conn *pgx.Conn, identity, databaseID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity != "" && s.identity != identity {
		s.generation.Add(1)
		s.resetLocked() // connections to the old one must not be written to any more
		s.log.Error("the database is another one, or on another timeline; every remembered signer is compared", "was", s.identity, "is", identity)
	}
	s.identity, s.databaseID = identity, databaseID
	data := conn.PgConn().CustomData()
	data[generationKey], data[resetKey] = s.generation.Load(), s.resets
}

// timeline reads on which timeline the server is; "": it does not tell, as Aurora.
func (s *Store) timeline(ctx context.Context, conn *pgx.Conn) (timeline string, err error) {
	err = conn.QueryRow(ctx, `SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)`, pgx.QueryExecModeExec).Scan(&timeline)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !slices.Contains([]string{codeNotSupported, codeNoFunction, codeNoPrivilege}, refused.Code) {
		return timeline, err
	}
	s.noTimeline.Do(func() {
		s.log.Warn("the database does not tell its timeline (pg_current_wal_lsn): a failover to a copy of it that lacks commits, or a restore of a backup in its place, cannot be noticed when it happens, and signers are not compared after it",
			"error", refused.Message)
	})
	return "", nil
}

// PoolerError says that there is a pooler between the gateway and PostgreSQL, with which it
// cannot work, and the way on.
type PoolerError struct{ why string }

// Error implements error.
func (e *PoolerError) Error() string {
	return "between here and PostgreSQL is PgBouncer, or another pooler: " + e.why +
		". Name PostgreSQL itself, host and port, in the URL: the gateway pools its connections (pool_max_conns bounds them)"
}

// poolerOr recognizes what a start comes to behind PgBouncer.
func poolerOr(err error) error {
	if pooler, ok := errors.AsType[*PoolerError](err); ok {
		return pooler
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
	case strings.Contains(refused.Message, "unsupported startup parameter"):
		return &PoolerError{"it refuses the settings of a session (" + refused.Message + ")"}
	case refused.Code == codePrepared || refused.Code == codeNotPrepared:
		return &PoolerError{"what one connection prepares another one finds (pool_mode transaction or statement: " + refused.Message + ")"}
	}
	return err
}

// checkSettings refuses a connection on which the settings that were asked for do not hold:
// something in between left them out.
func (s *Store) checkSettings(ctx context.Context, conn *pgx.Conn) error {
	asked := conn.Config().RuntimeParams
	var names []string
	for name := range runtimeParams() {
		if name != "application_name" { // a server shortens it
			names = append(names, name)
		}
	}
	rows, err := conn.Query(ctx, `SELECT name, setting FROM pg_settings WHERE name = ANY($1) ORDER BY name`, pgx.QueryExecModeExec, names)
	if err != nil {
		return fmt.Errorf("read the settings of the session: %w", err)
	}
	var wrong string
	var name, is string
	_, err = pgx.ForEachRow(rows, []any{&name, &is}, func() error {
		if wrong == "" && is != asked[name] {
			wrong = fmt.Sprintf("%s was asked for as %s and is %s", name, asked[name], is)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the settings of the session: %w", err)
	}
	if wrong != "" {
		return &PoolerError{"it leaves out the settings of a session (" + wrong + ")"}
	}
	return nil
}

// remember refuses a connection that shares its server with another one of ours, as those to
// a pooler in transaction mode do: a change of the server behind it would not be noticed.
func (s *Store) remember(conn *pgx.Conn, backend int32) error {
	if uint32(backend) == conn.PgConn().PID() { // #nosec G115 -- a process id
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backends[backend] {
		return &PoolerError{"two connections share one server (pool_mode transaction or statement), so that a failover behind them could not be noticed"}
	}
	s.backends[backend] = true
	conn.PgConn().CustomData()[backendKey] = backend
	return nil
}

// forget forgets the server of a connection that is closed, and what that watches.
func (s *Store) forget(conn *pgx.Conn) {
	watchedOf(conn.PgConn()).stop()
	if backend, ok := conn.PgConn().CustomData()[backendKey].(int32); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.backends, backend)
	}
}

// backendKey is where a connection to a pooler says which server it has.
const backendKey = "noncegate.backend"
