package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"noncegate/lease"
	"noncegate/nonce"
)

// How long after a commit that had to be done twice the next ones are careful at
// once. Every batch would else be done twice because of one outsider, or one client
// that repeats its request ids.
const (
	leaveLocked = time.Second
	lookForIDs  = time.Second
)

// Commit implements nonce.Ledger: one statement, one round trip. In two cases it was
// rolled back and there is a second one, which leaves out the signers at fault: a row
// turned out to be locked by somebody else, for longer than lock_timeout; or a request
// id was known already. To look for them first, as the commits of the next second
// do, costs half as much again as the update of a locked row, and as much again as
// the insert of an id.
func (s *Store) Commit(ctx context.Context, h lease.Holder, ttl time.Duration, changes []nonce.Change) (nonce.CommitResult, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nonce.CommitResult{}, err
	}
	defer conn.Release()
	if len(changes) > 0 && conn.Conn().PgConn().CustomData()[epochKey] != changes[0].Epoch {
		return nonce.CommitResult{}, notSent("commit", errEpoch)
	}
	e := encode(changes)
	now := time.Now().UnixNano()
	if now < s.locksUntil.Load() {
		e.skipLocked()
	}
	if now < s.idsUntil.Load() {
		e.lookForIDs()
	}
	res, err := e.execute(ctx, conn.Conn().PgConn(), h, ttl, len(changes))
	for again := true; err != nil && again; {
		switch {
		case lockedByOthers(err) && e.skipLocked():
			s.locksUntil.Store(time.Now().Add(leaveLocked).UnixNano())
		case violated(err) && e.lookForIDs(): // which of the two it was, that one tells
			s.idsUntil.Store(time.Now().Add(lookForIDs).UnixNano())
		default:
			again = false
			continue
		}
		res, err = e.execute(ctx, conn.Conn().PgConn(), h, ttl, len(changes))
	}
	if err != nil {
		return nonce.CommitResult{}, storeError("commit", err)
	}
	if syncRepCancelled(conn.Conn().PgConn()) {
		return nonce.CommitResult{}, errSyncRep
	}
	return res, nil
}

// skipLocked makes the statement leave out the rows that others have locked, and
// reports whether that is news.
func (e *encoded) skipLocked() bool { return e.enlarge(partWrite|partRun, partSkip) }

// lookForIDs makes it leave out the signers with request ids that are known.
func (e *encoded) lookForIDs() bool { return e.enlarge(partRequest, partKnown) }

// enlarge adds a part to a statement that has one of those it is about, unless it is
// there.
func (e *encoded) enlarge(about, part parts) bool {
	if e.parts&about == 0 || e.parts&part != 0 {
		return false
	}
	e.parts |= part
	return true
}

// params are the parameters of the statement, in binary.
func (e *encoded) params(h lease.Holder, ttl time.Duration) [][]byte {
	return [][]byte{
		[]byte(h.Node), binary.BigEndian.AppendUint64(nil, uint64(h.Incarnation)),
		binary.BigEndian.AppendUint64(nil, uint64(ttl/time.Microsecond)), e.blob,
		int8s(e.signers).encode(), int8s(e.rows).encode(), int8s(e.requests).encode(),
		int8s(e.numbers).encode(), int8s(e.checks).encode(),
	}
}

var (
	commitOIDs = []uint32{
		pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.ByteaOID, pgtype.Int8ArrayOID,
		pgtype.Int8ArrayOID, pgtype.Int8ArrayOID, pgtype.Int8ArrayOID, pgtype.Int8ArrayOID,
	}
	binaryFormat = []int16{1}
)

// prepare returns the name of the statement of these parts on conn. The first
// use on a connection costs a round trip.
func prepare(ctx context.Context, conn *pgconn.PgConn, p parts) (string, error) {
	name := fmt.Sprintf("noncegate_commit_%d", p)
	if _, ok := conn.CustomData()[name]; ok {
		return name, nil
	}
	if _, err := conn.Prepare(ctx, name, commitText(p), commitOIDs); err != nil {
		return "", err
	}
	conn.CustomData()[name] = true
	return name, nil
}

func (e *encoded) execute(ctx context.Context, conn *pgconn.PgConn, h lease.Holder, ttl time.Duration, n int) (nonce.CommitResult, error) {
	name, err := prepare(ctx, conn, e.parts)
	if err != nil {
		return nonce.CommitResult{}, err
	}
	r := conn.ExecPrepared(ctx, name, e.params(h, ttl), binaryFormat, binaryFormat).Read()
	if r.Err != nil {
		if forgotten(r.Err) {
			delete(conn.CustomData(), name)
		}
		return nonce.CommitResult{}, r.Err
	}
	return commitResult(r.Rows, e.runs, n)
}

// commitResult reads the one row: now, the ordinals of the changes that were
// applied, and of those that compared equal. Those of runs count in their order.
func commitResult(rows [][][]byte, runs []int, n int) (nonce.CommitResult, error) {
	if len(rows) != 1 || len(rows[0]) != 4 {
		return nonce.CommitResult{}, errors.New("the commit statement returned no row")
	}
	res := nonce.CommitResult{Applied: make([]bool, n), Now: timestamp(rows[0][0])}
	for _, array := range rows[0][1:3] {
		for _, ord := range ordinals(array) {
			if ord < 0 || ord >= int64(n) {
				return nonce.CommitResult{}, fmt.Errorf("the commit statement returned ordinal %d of %d", ord, n)
			}
			if runs != nil {
				ord = int64(runs[ord])
			}
			res.Applied[ord] = true
		}
	}
	return res, nil
}

// postgresEpoch is the zero of PostgreSQL's binary timestamps.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func timestamp(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	return postgresEpoch.Add(time.Duration(int64(binary.BigEndian.Uint64(b))) * time.Microsecond)
}

// A binary array: what comes before its elements, and each of those with its length.
const header, element = 20, 12

// ordinals reads a binary bigint[] without nulls; nil is none.
func ordinals(b []byte) []int64 {
	if len(b) < header {
		return nil
	}
	out := make([]int64, 0, (len(b)-header)/element)
	for at := header; at+element <= len(b); at += element {
		out = append(out, int64(binary.BigEndian.Uint64(b[at+4:])))
	}
	return out
}
