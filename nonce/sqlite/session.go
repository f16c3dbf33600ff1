package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"noncegate/nonce"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// session is one connection with the statements it has prepared so far. One
// goroutine uses it at a time.
type session struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

func (c *session) close() error {
	var errs []error
	for _, stmt := range c.prepared {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, c.conn.Close())...)
}

// stmt prepares a statement once. The texts are constants of this package, so
// there are few.
func (c *session) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := c.prepared[query]; ok {
		return stmt, nil
	}
	stmt, err := c.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.prepared[query] = stmt
	return stmt, nil
}

// exec runs a statement and returns how many rows it changed.
func (c *session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := c.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// each runs a query and calls fn for each row, until one of them ends in an error.
func (c *session) each(ctx context.Context, fn func(scan func(...any) error) error, query string, args ...any) error {
	stmt, err := c.stmt(ctx, query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// one scans the first row into dest and reports whether there was one.
func (c *session) one(ctx context.Context, dest []any, query string, args ...any) (bool, error) {
	stmt, err := c.stmt(ctx, query)
	if err != nil {
		return false, err
	}
	err = stmt.QueryRowContext(ctx, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// listOf is a parameter for json_each.
func listOf[T int | int64 | string](values []T) string {
	list, _ := json.Marshal(append([]T{}, values...)) // numbers and texts have no error; without any it is [], not null
	return string(list)
}

// count scans one number.
func (c *session) count(ctx context.Context, query string, args ...any) (n int64, err error) {
	_, err = c.one(ctx, []any{&n}, query, args...)
	return n, err
}

// read runs fn in one read transaction: everything it reads is of one moment. Its error is a
// *nonce.StoreError; whatever that says, nothing happened.
func (s *Store) read(ctx context.Context, fn func(context.Context, *session) error) error {
	var c *session
	select {
	case c = <-s.reader:
	case <-ctx.Done():
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: ctx.Err()}
	}
	defer func() { s.reader <- c }()
	_, err := c.exec(context.WithoutCancel(ctx), "BEGIN")
	if err == nil {
		defer c.rollback(ctx)
		err = fn(ctx, c)
	}
	if err != nil {
		return &nonce.StoreError{Outcome: nonce.Aborted, Err: err}
	}
	return nil
}

// rollback ends a transaction. Its error says nothing: SQLite has often rolled
// back by itself, and a transaction that stayed open fails the next BEGIN.
func (c *session) rollback(ctx context.Context) {
	_, _ = c.exec(context.WithoutCancel(ctx), "ROLLBACK")
}

// errPlan wraps an error that write hands through as it is.
type errPlan struct{ error }

// errNothing makes write roll back without being an error.
var errNothing = errors.New("nothing to write")

// write runs fn in one write transaction and commits it. Errors are
// *nonce.StoreError, but for errPlan. The transaction is not bound to the
// context once it has begun: it is short, and a commit that was interrupted
// would have an unknown outcome.
func (s *Store) write(ctx context.Context, fn func(context.Context, *session) error) error {
	c, err := s.takeWriter(ctx)
	if err != nil {
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: err}
	}
	defer func() { s.writer <- c }()
	ctx = context.WithoutCancel(ctx)
	if _, err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return &nonce.StoreError{Outcome: nonce.Aborted, Err: fmt.Errorf("begin: %w", s.named(err))}
	}
	open := true
	defer func() { // also when fn panics
		if open {
			c.rollback(ctx)
		}
	}()
	if err := fn(ctx, c); err != nil {
		return refusal(s.named(err))
	}
	switch _, err := c.exec(ctx, "COMMIT"); {
	case err == nil:
		open = false
		return nil
	case primaryCode(err) == sqlite3.SQLITE_BUSY:
		return &nonce.StoreError{Outcome: nonce.Aborted, Err: fmt.Errorf("commit: %w", err)}
	default:
		err = fmt.Errorf("commit: %w", s.named(err))
		s.fail(err)
		return &nonce.StoreError{Outcome: nonce.Unknown, Err: err}
	}
}

// takeWriter waits for the writing session.
func (s *Store) takeWriter(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case c := <-s.writer:
		if err := s.broken.Load(); err != nil {
			s.writer <- c
			return nil, fmt.Errorf("writes are refused since an earlier error: %w", *err)
		}
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fail refuses all later writes and calls for the end of the process.
func (s *Store) fail(err error) {
	if s.broken.CompareAndSwap(nil, &err) && s.cfg.Fatal != nil {
		s.cfg.Fatal(err)
	}
}

// refusal is what write returns for an error before COMMIT: nothing happened.
func refusal(err error) error {
	plan, ofPlan := err.(errPlan)
	switch {
	case err == errNothing:
		return nil
	case ofPlan:
		return plan.error
	case primaryCode(err) == sqlite3.SQLITE_CONSTRAINT:
		err = fmt.Errorf("%w: %w", nonce.ErrInvariant, err)
	}
	return &nonce.StoreError{Outcome: nonce.Aborted, Err: err}
}

// named adds the file to an error that is about the disk that it is on.
func (s *Store) named(err error) error {
	if primaryCode(err) == sqlite3.SQLITE_FULL {
		return fmt.Errorf("there is no room on the disk of %s: %w", s.path, err)
	}
	return err
}

// primaryCode is SQLite's result code of an error, 0 when it is not SQLite's.
func primaryCode(err error) int {
	if se, ok := errors.AsType[*sqlite.Error](err); ok {
		return se.Code() & 0xff
	}
	return 0
}
