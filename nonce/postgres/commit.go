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

// leaveLocked is how long after a row turned out to be locked commits leave
// locked rows out at once. Every batch would else wait for the same outsider.
const leaveLocked = time.Second

// Commit implements nonce.Ledger: one statement, one round trip. Only where a row
// turns out to be locked by somebody else, so that the statement was aborted after
// lock_timeout, is there a second one, which leaves such rows out: looking for
// them first, as the commits of the next second do, costs as much as the update
// itself.
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
	if e.parts&(partWrite|partRun) != 0 && time.Now().UnixNano() < s.locksUntil.Load() {
		e.parts |= partSkip
	}
	res, err := e.execute(ctx, conn.Conn().PgConn(), h, ttl, len(changes))
	if e.parts&partSkip == 0 && lockedByOthers(err) {
		s.locksUntil.Store(time.Now().Add(leaveLocked).UnixNano())
		e.parts |= partSkip
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

// params are the parameters of the statement, in binary.
func (e *encoded) params(h lease.Holder, ttl time.Duration) [][]byte {
	return [][]byte{
		[]byte(h.Node), binary.BigEndian.AppendUint64(nil, uint64(h.Incarnation)),
		binary.BigEndian.AppendUint64(nil, uint64(ttl/time.Microsecond)), e.blob,
		int8s(e.signers).encode(nil), int8s(e.rows).encode(nil), int8s(e.requests).encode(nil),
		int8s(e.numbers).encode(nil), int8s(e.checks).encode(nil),
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

// ordinals reads a binary bigint[] without nulls; nil is none.
func ordinals(b []byte) []int64 {
	const header, element = 20, 12
	if len(b) < header {
		return nil
	}
	out := make([]int64, 0, (len(b)-header)/element)
	for at := header; at+element <= len(b); at += element {
		out = append(out, int64(binary.BigEndian.Uint64(b[at+4:])))
	}
	return out
}
