package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"noncegate/nonce"
)

const (
	codeDivisionByZero  = "22012" // broken(), the assertion of a commit statement
	codeUniqueViolation = "23505"
	codeDeadlock        = "40P01"
	codeLockTimeout     = "55P03"
	codePrepared        = "42P05"
	codeNotPrepared     = "26000"
	codeNotSupported    = "0A000"
	codeNoFunction      = "42883"
	codeNoPrivilege     = "42501"
	codeReadOnly        = "25006" // a demoted server that kept our connection
)

// storeError wraps an error of a statement that was sent or may have been.
// Severity ERROR means that the server refused and rolled back; a FATAL one may
// come after the commit, when the server is being stopped. The driver calls a
// closed connection safe to retry also when it broke while the reply to a simple
// query was read, so its word does not count there.
func storeError(doing string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", doing, err)
	if pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) {
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: err}
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || severity(pgErr) != "ERROR":
		return &nonce.StoreError{Outcome: nonce.Unknown, Err: err}
	case pgErr.Code == codeReadOnly:
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: err}
	case violated(pgErr):
		return &nonce.StoreError{Outcome: nonce.Aborted, Err: fmt.Errorf("%w: %w", nonce.ErrInvariant, err)}
	}
	return &nonce.StoreError{Outcome: nonce.Aborted, Err: err}
}

// notSent wraps an error from before anything was sent.
func notSent(doing string, err error) error {
	return &nonce.StoreError{Outcome: nonce.NotSent, Err: fmt.Errorf("%s: %w", doing, err)}
}

// errSyncRep: the wait for the synchronous replica was cancelled. The commit is
// on this server's disk, and perhaps nowhere else.
var errSyncRep = &nonce.StoreError{
	Outcome: nonce.Unknown,
	Err:     errors.New("commit: the wait for the synchronous replica was cancelled"),
}

// errGeneration: this connection may be to another database than the one the changes
// were planned against. They are compared with it first.
var errGeneration = errors.New("the database may have become another one")

// severity is the word that no server translates; very old ones do not send it.
func severity(err *pgconn.PgError) string { return cmp.Or(err.SeverityUnlocalized, err.Severity) }

// lockedByOthers reports that a statement was rolled back because it waited for
// somebody's lock for too long, or in a circle.
func lockedByOthers(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && severity(pgErr) == "ERROR" && (pgErr.Code == codeLockTimeout || pgErr.Code == codeDeadlock)
}

// violated reports that a statement was rolled back because something is not as the
// changes suppose: a request id that is known already, or else a row that is not as
// the rules left it.
func violated(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && severity(pgErr) == "ERROR" && (pgErr.Code == codeUniqueViolation || pgErr.Code == codeDivisionByZero)
}

// Away reports whether err means that there was no server to talk to, or one
// that is starting or stopping: it may be there in a moment. A wrong password or
// database name does not go away by waiting.
func Away(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pgErr.Code, "57P")
	}
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}
