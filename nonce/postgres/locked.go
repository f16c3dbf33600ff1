package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/nonce"
)

// nothingCommitted wraps an error from before COMMIT was sent: whatever became
// of the connection, nothing happened.
func nothingCommitted(doing string, err error) error {
	if err == nil {
		return nil
	}
	wrapped := storeError(doing, err).(*nonce.StoreError)
	if wrapped.Outcome == nonce.Unknown {
		wrapped.Outcome = nonce.NotSent
	}
	return wrapped
}

// commit ends the transaction. A commit can come back as a rollback.
func commit(ctx context.Context, conn *pgxpool.Conn) error {
	tag, err := conn.Exec(ctx, "COMMIT")
	switch {
	case err != nil:
		return storeError("commit", err)
	case tag.String() != "COMMIT":
		return &nonce.StoreError{Outcome: nonce.Aborted, Err: pgx.ErrTxCommitRollback}
	case syncRepCancelled(conn.Conn().PgConn()):
		return errSyncRep
	}
	return nil
}

// rollback gives the connection back clean, or closes it.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = conn.Conn().Close(ctx) // the pool drops a closed connection
	}
}
