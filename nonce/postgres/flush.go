package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"noncegate/nonce"
)

// flushText builds the one statement of Apply. It is made as a commit is (see
// commitText): arrays of numbers, one byte string, and everything hangs on the rows
// that the update of the signers returned (u).
//
// With partSkip the update leaves locked rows out; without it lock_timeout ends the
// statement. A row that another flush brings to the event's version while this one
// waits is left alone: an update takes rows that are as it wants them in its snapshot
// and also when they are locked. So the rows which that flush made are never missed.
//
// Parameters: $1 ttl, $2 bytes, $3 events as 15 numbers each, $4 rows as 10 numbers
// each, $5 requests as 7 numbers each, $6 nonces and attempts of the requests.
func flushText(p parts) string {
	var b strings.Builder
	b.WriteString(flushedText)
	b.WriteString(choose(p&partSkip != 0, flushSkipText, ""))
	b.WriteString(`
, u AS (
  UPDATE signer_nonce_state s
  SET version = w.upto, updated_at = c.now, next_nonce = w.next, floor = w.floor, held = w.held,
      expires_at = CASE WHEN s.fencing_token = w.token THEN greatest(s.expires_at, c.expires) ELSE s.expires_at END
  FROM c, ` + choose(p&partSkip != 0, "l", "w") + ` w
  WHERE s.signer_id = w.id AND s.version = w.since` + performanceText + `
  RETURNING s.signer_id, w.ord, w.token, w.floor, w.row_lo, w.row_mid, w.row_hi, w.req_lo, w.req_hi, w.below, w.at)`)
	if p&partInsert != 0 {
		b.WriteString(flushInsertText)
	}
	if p&partUpdate != 0 {
		b.WriteString(flushUpdateText)
	}
	if p&partFloor != 0 {
		b.WriteString(flushFloorText)
	}
	if p&partRequest != 0 {
		b.WriteString(flushRequestText)
	}
	b.WriteString(`
SELECT (SELECT array_agg(u.ord) FROM u), s.ords, s.versions, s.engines`)
	b.WriteString(choose(p&partUpdate != 0,
		", 1 / (CASE WHEN (SELECT count(*) FROM r) = (SELECT coalesce(sum(u.row_hi - u.row_mid), 0) FROM u) THEN 1 ELSE 0 END)", ", 1"))
	b.WriteString(`
FROM (SELECT array_agg(w.ord) AS ords, array_agg(coalesce(w.seen, -1)) AS versions, array_agg(coalesce(w.engine, 0)::bigint) AS engines FROM w) s`)
	return b.String()
}

// Widths of the records in $3, $4 and $5.
const (
	eventWidth        = 15
	flushRowWidth     = 10
	flushRequestWidth = 7
)

// flushedText is the array of the events as rows, in order of id, with the row of
// their signer as the statement's snapshot shows it.
const flushedText = `
WITH c AS MATERIALIZED (SELECT now, now + $1::bigint * interval '1 microsecond' AS expires FROM clock_timestamp() now)
, w AS MATERIALIZED (
  SELECT ($3::bigint[])[o+1] AS ord, ($3::bigint[])[o+2] AS id, ($3::bigint[])[o+3] AS token, ($3::bigint[])[o+4] AS since, ($3::bigint[])[o+5] AS upto,
         ($3::bigint[])[o+6] AS next, ($3::bigint[])[o+7] AS floor, ($3::bigint[])[o+8] AS held,
         ($3::bigint[])[o+9] AS row_lo, ($3::bigint[])[o+10] AS row_mid, ($3::bigint[])[o+11] AS row_hi,
         ($3::bigint[])[o+12] AS req_lo, ($3::bigint[])[o+13] AS req_hi, ($3::bigint[])[o+14] AS below,
         timestamptz 'epoch' + ($3::bigint[])[o+15] * interval '1 microsecond' AS at, s.version AS seen, s.engine
  FROM generate_series(0, cardinality($3::bigint[]) - 1, 15) o LEFT JOIN signer_nonce_state s ON s.signer_id = ($3::bigint[])[o+2]
  WHERE o + 0 = o)`

const flushSkipText = `
, l AS MATERIALIZED (
  SELECT w.* FROM w, LATERAL (SELECT 1 FROM signer_nonce_state s WHERE s.signer_id = w.id FOR NO KEY UPDATE SKIP LOCKED) free)`

const flushInsertText = `
, i AS (
  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at, tx_hash, reason, holder)
  SELECT u.signer_id, ($4::bigint[])[n*10+1], ($4::bigint[])[n*10+2], ($4::bigint[])[n*10+3], ($4::bigint[])[n*10+4],
         CASE WHEN ($4::bigint[])[n*10+2] = 1 THEN timestamptz 'epoch' + ($4::bigint[])[n*10+5] * interval '1 microsecond' END, u.at, u.at,
         CASE WHEN ($4::bigint[])[n*10+6] > 0 THEN substring($2::bytea FROM ($4::bigint[])[n*10+6]::int FOR ($4::bigint[])[n*10+10]::int) END,
         CASE WHEN ($4::bigint[])[n*10+8] > 0 THEN convert_from(substring($2::bytea FROM ($4::bigint[])[n*10+7]::int FOR ($4::bigint[])[n*10+8]::int), 'UTF8') END, nullif(($4::bigint[])[n*10+9], 0)
  FROM u, generate_series(u.row_lo, u.row_mid - 1) n WHERE n + 0 = n)`

// flushUpdateText changes rows that exist. A CONSUMED one stays as it is where the event
// says the same; else it gets hashes that it did not have, and loses none, or is handed
// out again by a repair. Others must not go back to an attempt before, nor from RELEASED
// to HELD under the same.
const flushUpdateText = `
, r AS (
  UPDATE signer_nonce_allocation a
  SET status = x.status, attempt = x.attempt, held_until = x.held_until, promised_until = NULL, tx_hash = x.tx_hash,
      reason = CASE WHEN ` + saidAgain + ` THEN a.reason ELSE x.reason END, holder = CASE WHEN ` + saidAgain + ` THEN a.holder ELSE x.holder END,
      fencing_token = CASE WHEN ` + saidAgain + ` THEN a.fencing_token ELSE x.token END,
      updated_at = CASE WHEN ` + saidAgain + ` THEN a.updated_at ELSE x.at END
  FROM (
    SELECT u.signer_id, u.at, ($4::bigint[])[n*10+1] AS nonce, ($4::bigint[])[n*10+2]::smallint AS status, ($4::bigint[])[n*10+3] AS attempt, ($4::bigint[])[n*10+4] AS token,
           CASE WHEN ($4::bigint[])[n*10+2] = 1 THEN timestamptz 'epoch' + ($4::bigint[])[n*10+5] * interval '1 microsecond' END AS held_until,
           CASE WHEN ($4::bigint[])[n*10+6] > 0 THEN substring($2::bytea FROM ($4::bigint[])[n*10+6]::int FOR ($4::bigint[])[n*10+10]::int) END AS tx_hash,
           CASE WHEN ($4::bigint[])[n*10+8] > 0 THEN convert_from(substring($2::bytea FROM ($4::bigint[])[n*10+7]::int FOR ($4::bigint[])[n*10+8]::int), 'UTF8') END AS reason,
           nullif(($4::bigint[])[n*10+9], 0) AS holder
    FROM u, generate_series(u.row_mid, u.row_hi - 1) n WHERE n + 0 = n) x
  WHERE a.signer_id = x.signer_id AND a.nonce = x.nonce AND CASE a.status
    WHEN 3 THEN x.status = 3 AND x.attempt = a.attempt AND (a.tx_hash IS NULL OR length(x.tx_hash) >= length(a.tx_hash) AND position(substring(a.tx_hash FOR 32) IN x.tx_hash) > 0)
      OR x.status = 1 AND x.attempt > a.attempt AND x.reason = '` + nonce.ReasonRepair + `'
    ELSE x.attempt > a.attempt OR x.attempt = a.attempt AND (x.status <> 1 OR a.status = 1) END
  RETURNING 1)`

// saidAgain: the row is CONSUMED, and the event adds nothing to it.
const saidAgain = `a.status = 3 AND x.status = 3 AND a.tx_hash IS NOT DISTINCT FROM x.tx_hash`

const flushFloorText = `
, f AS (
  UPDATE signer_nonce_allocation a
  SET status = 3, fencing_token = u.token, updated_at = u.at, reason = 'below_floor'
  FROM u
  WHERE u.below = 1 AND a.signer_id = u.signer_id AND a.status = 2 AND a.nonce < u.floor
    AND NOT EXISTS (SELECT 1 FROM generate_series(u.row_mid, u.row_hi - 1) n WHERE ($4::bigint[])[n*10+1] = a.nonce))`

// flushRequestText: an id that Redis took for new while it is remembered here is one
// whose retention has ended, and that nobody has deleted yet.
const flushRequestText = `
, q AS (
  INSERT INTO signer_nonce_request (signer_id, request_id, request_hash, nonces, attempts, created_at)
  SELECT u.signer_id, convert_from(substring($2::bytea FROM ($5::bigint[])[q*7+1]::int FOR ($5::bigint[])[q*7+2]::int), 'UTF8'),
         substring($2::bytea FROM ($5::bigint[])[q*7+3]::int FOR 16),
         ($6::bigint[])[($5::bigint[])[q*7+4]:($5::bigint[])[q*7+5]],
         ($6::bigint[])[($5::bigint[])[q*7+5]+1:($5::bigint[])[q*7+6]],
         timestamptz 'epoch' + ($5::bigint[])[q*7+7] * interval '1 microsecond'
  FROM u, generate_series(u.req_lo, u.req_hi - 1) q WHERE q + 0 = q
  ON CONFLICT (signer_id, request_id) DO UPDATE
  SET request_hash = EXCLUDED.request_hash, nonces = EXCLUDED.nonces, attempts = EXCLUDED.attempts, created_at = EXCLUDED.created_at)`

var flushOIDs = []uint32{
	pgtype.Int8OID, pgtype.ByteaOID, pgtype.Int8ArrayOID, pgtype.Int8ArrayOID, pgtype.Int8ArrayOID, pgtype.Int8ArrayOID,
}

// Apply implements nonce.EngineLedger: one statement, one round trip. As in Commit,
// a second one leaves out what somebody else has locked.
func (s *Store) Apply(ctx context.Context, ttl time.Duration, events []nonce.FlushEvent) ([]nonce.FlushVerdict, error) {
	if len(events) == 0 {
		return nil, nil
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	e := encodeFlush(events)
	if time.Now().UnixNano() < s.locksUntil.Load() {
		e.parts |= partSkip
	}
	verdicts, err := e.execute(ctx, conn.Conn().PgConn(), ttl, events)
	if e.parts&partSkip == 0 && lockedByOthers(err) {
		s.locksUntil.Store(time.Now().Add(leaveLocked).UnixNano())
		e.parts |= partSkip
		verdicts, err = e.execute(ctx, conn.Conn().PgConn(), ttl, events)
	}
	if err != nil {
		return nil, storeError("flush", err)
	}
	if syncRepCancelled(conn.Conn().PgConn()) {
		return nil, errSyncRep
	}
	return verdicts, nil
}

// flushed are the parameters of the statement of Apply.
type flushed struct {
	parts    parts
	blob     []byte
	events   []int64
	rows     []int64
	requests []int64
	numbers  []int64
}

func encodeFlush(events []nonce.FlushEvent) *flushed {
	rows := 0
	for i := range events {
		rows += len(events[i].Rows)
	}
	e := &flushed{
		parts: partWrite, blob: []byte{0},
		events: make([]int64, 0, len(events)*eventWidth), rows: make([]int64, 0, rows*flushRowWidth),
	}
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(events[a].ID, events[b].ID) })
	for _, i := range order {
		e.add(int64(i), &events[i])
	}
	return e
}

func (e *flushed) add(ord int64, ev *nonce.FlushEvent) {
	lo := e.addRows(ev, true, partInsert)
	mid := e.addRows(ev, false, partUpdate)
	hi := int64(len(e.rows) / flushRowWidth)
	reqLo := int64(len(e.requests) / flushRequestWidth)
	for i := range ev.Requests {
		e.parts |= partRequest
		e.addRequest(&ev.Requests[i])
	}
	below := int64(0)
	if ev.BelowFloor {
		e.parts |= partFloor
		below = 1
	}
	e.events = append(e.events, ord, ev.ID, ev.Token, ev.From, ev.To, ev.Next, ev.Floor, ev.Held,
		lo, mid, hi, reqLo, int64(len(e.requests)/flushRequestWidth), below, ev.At.UnixMicro())
}

// addRows adds the rows that are fresh, or those that are not, and returns where
// they begin. The new floor is applied to them here: a statement cannot change one
// row twice.
func (e *flushed) addRows(ev *nonce.FlushEvent, fresh bool, part parts) int64 {
	lo := int64(len(e.rows) / flushRowWidth)
	for i := range ev.Rows {
		if r := ev.Rows[i]; r.Fresh == fresh {
			if ev.BelowFloor && r.Status == nonce.Released && r.Nonce < ev.Floor {
				r.Status, r.Reason = nonce.Consumed, nonce.ReasonBelowFloor
			}
			e.parts |= part
			e.addRow(&r)
		}
	}
	return lo
}

func (e *flushed) addRow(r *nonce.FlushRow) {
	var hashAt, reasonAt, until int64
	hashes := nonce.JoinHashes(r.TxHash, r.Replaced)
	if hashes != nil {
		hashAt = e.put(hashes)
	}
	if r.Reason != "" {
		reasonAt = e.put([]byte(r.Reason))
	}
	if r.Status == nonce.Held {
		until = r.HeldUntil.UnixMicro()
	}
	e.rows = append(e.rows, r.Nonce, int64(r.Status), r.Attempt, r.Token, until, hashAt, reasonAt, int64(len(r.Reason)), int64(r.Holder), int64(len(hashes)))
}

func (e *flushed) addRequest(r *nonce.Remembered) {
	idAt, hashAt := e.put([]byte(r.ID)), e.put(r.Hash[:])
	lo := int64(len(e.numbers)) + 1
	e.numbers = append(e.numbers, r.Nonces...)
	mid := int64(len(e.numbers))
	e.numbers = append(e.numbers, r.Attempts...)
	e.requests = append(e.requests, idAt, int64(len(r.ID)), hashAt, lo, mid, int64(len(e.numbers)), r.At.UnixMicro())
}

// put appends b to the byte string and returns its 1-based position in it.
func (e *flushed) put(b []byte) int64 {
	at := int64(len(e.blob)) + 1
	e.blob = append(e.blob, b...)
	return at
}

func (e *flushed) execute(ctx context.Context, conn *pgconn.PgConn, ttl time.Duration, events []nonce.FlushEvent) ([]nonce.FlushVerdict, error) {
	name := fmt.Sprintf("noncegate_flush_%d", e.parts)
	if _, ok := conn.CustomData()[name]; !ok {
		if _, err := conn.Prepare(ctx, name, flushText(e.parts), flushOIDs); err != nil {
			return nil, err
		}
		conn.CustomData()[name] = true
	}
	params := [][]byte{
		binary.BigEndian.AppendUint64(nil, uint64(ttl/time.Microsecond)), e.blob, int8s(e.events).encode(),
		int8s(e.rows).encode(), int8s(e.requests).encode(), int8s(e.numbers).encode(),
	}
	r := conn.ExecPrepared(ctx, name, params, binaryFormat, binaryFormat).Read()
	if r.Err != nil {
		if forgotten(r.Err) {
			delete(conn.CustomData(), name)
		}
		return nil, r.Err
	}
	return flushVerdicts(r.Rows, events)
}

// flushVerdicts reads the one row: the ordinals of what was applied, and of all
// events the ordinal, and the version and engine of their signer's row.
func flushVerdicts(rows [][][]byte, events []nonce.FlushEvent) ([]nonce.FlushVerdict, error) {
	if len(rows) != 1 || len(rows[0]) != 5 {
		return nil, errors.New("the flush statement returned no row")
	}
	out := make([]nonce.FlushVerdict, len(events))
	ords, versions, engines := ordinals(rows[0][1]), ordinals(rows[0][2]), ordinals(rows[0][3])
	if len(ords) != len(events) || len(versions) != len(events) || len(engines) != len(events) {
		return nil, fmt.Errorf("the flush statement returned %d of %d events", len(ords), len(events))
	}
	for i, ord := range ords {
		out[ord] = flushVerdict(&events[ord], versions[i], nonce.Engine(engines[i]))
	}
	for _, ord := range ordinals(rows[0][0]) {
		out[ord] = nonce.FlushApplied
	}
	return out, nil
}

// flushVerdict says why an event was not applied, by what the row was when the
// statement began. Where there was no reason, somebody else was at it.
func flushVerdict(ev *nonce.FlushEvent, version int64, engine nonce.Engine) nonce.FlushVerdict {
	switch {
	case version < 0:
		return nonce.FlushGap
	case nonce.EpochOf(version) > nonce.EpochOf(ev.To):
		return nonce.FlushOver
	case version >= ev.To:
		return nonce.FlushAlready
	case engine != nonce.Performance:
		return nonce.FlushOver
	case version < ev.From:
		return nonce.FlushGap
	case version > ev.From:
		return nonce.FlushPartly
	}
	return nonce.FlushLocked
}
