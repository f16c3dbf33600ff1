package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/lease"
	"noncegate/nonce"
)

// Locked implements nonce.Locker in three round trips: begin, lock and load;
// write; commit. The loading statements come after the lock and have snapshots of
// their own, so they see what the last holder of the lock committed.
func (s *Store) Locked(ctx context.Context, need nonce.Need, plan func(nonce.Snapshot) (nonce.Change, error)) (time.Time, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Release()
	now, err := s.locked(ctx, conn, need, plan)
	if err != nil && conn.Conn().PgConn().TxStatus() != 'I' {
		rollback(ctx, conn)
	}
	return now, err
}

func (s *Store) locked(ctx context.Context, conn *pgxpool.Conn, need nonce.Need, plan func(nonce.Snapshot) (nonce.Change, error)) (time.Time, error) {
	needs := []nonce.Need{need}
	snaps := blank(needs)
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(createSigners, []string{need.Signer})
	b.Queue(`SELECT 1 FROM signer_nonce_state WHERE signer = $1 FOR NO KEY UPDATE`, need.Signer)
	queueLoad(b, needs, snaps)
	if err := send(ctx, conn, b); err != nil {
		return time.Time{}, nothingCommitted("lock", err)
	}
	if snaps[0].Engine != nonce.Reliable {
		return time.Time{}, &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrOtherEngine}
	}
	change, err := plan(snaps[0])
	if err != nil {
		return time.Time{}, err
	}
	if change.Check {
		_, err := conn.Exec(ctx, "ROLLBACK")
		return snaps[0].Now, nothingCommitted("rollback", err)
	}
	change.Token = 0 // what is written under a lock belongs to no lease
	e := encode([]nonce.Change{change})
	e.parts |= partLocked
	e.lookForIDs() // an error would end the transaction, and with it the answer
	res, err := e.execute(ctx, conn.Conn().PgConn(), lease.Holder{}, 0, 1)
	if err != nil {
		return time.Time{}, nothingCommitted("write", err)
	}
	if !res.Applied[0] {
		return time.Time{}, nothingCommitted("write", errNotApplied)
	}
	return res.Now, commit(ctx, conn)
}

// errNotApplied: the version moved under our own lock, or a request id appeared.
var errNotApplied = &pgconn.PgError{Severity: "ERROR", Code: codeUniqueViolation, Message: "the locked signer's row was not as it was read"}

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
