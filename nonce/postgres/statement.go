package postgres

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"noncegate/nonce"
)

// parts are the pieces a commit statement may have. Each combination is prepared
// once a connection.
type parts uint16

const (
	partWrite   parts = 1 << iota // signers are written to
	partLocked                    // under Locker: the version is the condition, and no lease is touched
	partSkip                      // rows that others have locked are left out
	partInsert                    // fresh rows
	partUpdate                    // rows that exist
	partFloor                     // RELEASED rows below a new floor are consumed
	partRequest                   // request ids are remembered
	partKnown                     // a signer with a request id that is known is left out
	partCheck                     // signers are only compared
	partRun                       // every change is a run, with or without request ids, and nothing else is in the commit
	partOne                       // every run is of one nonce
	partHolder                    // holds of runs are somebody's
)

// commitText builds the one statement of a commit. It is one statement so that
// it is one round trip and one transaction, and so that everything in it takes
// effect only through the rows that the update of the signers returned (u).
//
// Plans are fixed on purpose: every join is a nested loop into a primary key,
// driven by the arrays, whatever the tables' sizes were when the statement was
// prepared (see runtimeParams). The conditions o + 0 = o tell the planner, which
// takes any series for a thousand rows, to expect few. What belongs to a signer lies
// together in the arrays, from lo to hi, so that no join compares all with all;
// and everything of variable length is a slice of one byte string ($4), because
// the n-th element of an array of texts costs n steps.
//
// Most commits are runs only (see notRun); they have a form of their own with a
// quarter of the numbers, which are read from the array where they are used: a
// row made of them first costs a microsecond a signer, and so does a series for
// the nonces of a run where there is only one.
//
// Parameters: $1 owner, $2 incarnation, $3 ttl, $4 bytes, $5 signers as 13
// numbers each (runs: see runWidth), $6 rows as 11 numbers each, $7 requests as 6
// numbers each, $8 nonces and attempts of the requests, $9 checks as 4 numbers each.
func commitText(p parts) string {
	var b strings.Builder
	b.WriteString("WITH c AS MATERIALIZED (SELECT now, now + $3::bigint * interval '1 microsecond' AS expires, $1::text AS owner, $2::bigint AS incarnation, length($4::bytea) AS blob FROM clock_timestamp() now)")
	if p&partRun != 0 {
		b.WriteString(choose(p&partSkip != 0, runSkipText(p), ""))
		b.WriteString(runText(p))
		b.WriteString(runInsertText(p))
	} else if p&partWrite != 0 {
		b.WriteString(wantedText)
		b.WriteString(choose(p&partSkip != 0, skipText, ""))
		b.WriteString(signerText(p))
	}
	if p&partInsert != 0 {
		b.WriteString(insertText)
	}
	if p&partUpdate != 0 {
		b.WriteString(updateText)
	}
	if p&partFloor != 0 {
		b.WriteString(floorText)
	}
	if p&partRequest != 0 {
		b.WriteString(requestText)
	}
	if p&partCheck != 0 {
		b.WriteString(checkText)
	}
	b.WriteString("\nSELECT c.now")
	b.WriteString(choose(p&(partWrite|partRun) != 0, ", (SELECT array_agg(u.ord) FROM u)", ", NULL::bigint[]"))
	b.WriteString(choose(p&partCheck != 0, ", (SELECT array_agg(k.ord) FROM k)", ", NULL::bigint[]"))
	// A row that was not as the rules left it aborts everything: the number of
	// updated rows must be the number that the applied signers asked for.
	b.WriteString(choose(p&partUpdate != 0,
		", 1 / (CASE WHEN (SELECT count(*) FROM r) = (SELECT coalesce(sum(u.row_hi - u.row_mid), 0) FROM u) THEN 1 ELSE 0 END)", ", 1"))
	b.WriteString("\nFROM c")
	return b.String()
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// Widths of the records in $5, $6 and $7.
const (
	signerWidth  = 13
	rowWidth     = 11
	requestWidth = 6
	requestBytes = 48 // of one in $4: its hash, and room for an id as most are
)

// wantedText is the array of the signers as rows, in order of id.
const wantedText = `
, w AS MATERIALIZED (
  SELECT ($5::bigint[])[o+1] AS ord, ($5::bigint[])[o+2] AS id, ($5::bigint[])[o+3] AS token, ($5::bigint[])[o+4] AS version,
         ($5::bigint[])[o+5] AS next, ($5::bigint[])[o+6] AS floor, ($5::bigint[])[o+7] AS held,
         ($5::bigint[])[o+8] AS row_lo, ($5::bigint[])[o+9] AS row_mid, ($5::bigint[])[o+10] AS row_hi,
         ($5::bigint[])[o+11] AS req_lo, ($5::bigint[])[o+12] AS req_hi, ($5::bigint[])[o+13] AS below
  FROM generate_series(0, cardinality($5::bigint[]) - 1, 13) o WHERE o + 0 = o)`

// skipText leaves out the signers whose row somebody else has locked. It locks
// the others one by one in the order of the array.
const skipText = `
, l AS MATERIALIZED (
  SELECT w.* FROM w, LATERAL (SELECT 1 FROM signer_nonce_state s WHERE s.signer_id = w.id FOR NO KEY UPDATE SKIP LOCKED) free)`

// reliableText is the condition that the reliable engine serves the signer.
const reliableText = ` AND s.engine = 0`

// ownerText is the condition of a lease; a version alone is that of a lock.
const ownerText = ` AND s.fencing_token = w.token AND s.owner_node = c.owner AND s.owner_incarnation = c.incarnation`

// newText leaves out a signer with a request id that is remembered already. The
// statement's snapshot is good enough for that: ids are only written together with
// a new version, and the version is compared with the row as it is. Without it such
// an id violates the primary key, and everything is rolled back.
//
// Each id is looked up by the whole of that key. Two things would make it a walk
// over all ids of the signer: a join that the planner may turn round, hence the
// LIMIT; and the collation of the comparison, which convert_from takes from its second
// argument (C), and which must be that of the index.
func newText(signer, lo, hi string) string {
	return ` AND NOT EXISTS (
    SELECT 1 FROM (SELECT generate_series(` + lo + `, ` + hi + ` - 1) AS q) q, LATERAL (
      SELECT 1 FROM signer_nonce_request known
      WHERE known.signer_id = ` + signer + `
        AND known.request_id = convert_from(substring($4::bytea FROM ($7::bigint[])[q*6+1]::int FOR ($7::bigint[])[q*6+2]::int), 'UTF8') COLLATE "default"
      LIMIT 1) known)`
}

// signerText is the fence: the update of the signers on the condition of owner,
// token and version. It locks rows in the order of the array.
func signerText(p parts) string {
	return `
, u AS (
  UPDATE signer_nonce_state s
  SET version = s.version + 1, updated_at = c.now, next_nonce = w.next, floor = w.floor, held = w.held` +
		choose(p&partLocked == 0, `, expires_at = c.expires`, "") + `
  FROM c, ` + choose(p&partSkip != 0, "l", "w") + ` w
  WHERE s.signer_id = w.id AND s.version = w.version` + reliableText + choose(p&partLocked == 0, ownerText, "") +
		choose(p&partKnown != 0, newText("w.id", "w.req_lo", "w.req_hi"), "") + `
  RETURNING s.signer_id, w.ord, w.token, c.now, s.floor, w.row_lo, w.row_mid, w.row_hi, w.req_lo, w.req_hi, w.below)`
}

const insertText = `
, i AS (
  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at, tx_hash, reason, holder)
  SELECT u.signer_id, ($6::bigint[])[n*11+1], ($6::bigint[])[n*11+2], ($6::bigint[])[n*11+3], u.token,
         CASE WHEN ($6::bigint[])[n*11+2] = 1 THEN u.now + ($6::bigint[])[n*11+4] * interval '1 microsecond' END, u.now, u.now,
         CASE WHEN ($6::bigint[])[n*11+7] > 0 THEN substring($4::bytea FROM ($6::bigint[])[n*11+7]::int FOR ($6::bigint[])[n*11+11]::int) END,
         CASE WHEN ($6::bigint[])[n*11+9] > 0 THEN convert_from(substring($4::bytea FROM ($6::bigint[])[n*11+8]::int FOR ($6::bigint[])[n*11+9]::int), 'UTF8') END, nullif(($6::bigint[])[n*11+10], 0)
  FROM u, generate_series(u.row_lo, u.row_mid - 1) n WHERE n + 0 = n)`

// updateText changes rows that must be as the draft found them. A HELD row is never
// overwritten by a hold, nor a CONSUMED one, unless it is the same hold that goes on, or
// a later one by a repair. One that nobody may sweep until the doubt about it ends stays
// so; what its holder is told is the new deadline.
const updateText = `
, r AS (
  UPDATE signer_nonce_allocation a
  SET status = x.status, attempt = x.attempt, fencing_token = x.token,
      held_until = CASE WHEN x.status = 1 AND a.promised_until IS NOT NULL 
                        THEN greatest(x.held_until, (SELECT e.doubt_until FROM signer_nonce_engine e WHERE e.signer_id = a.signer_id)) ELSE x.held_until END,
      promised_until = CASE WHEN x.status = 1 AND a.promised_until IS NOT NULL THEN x.held_until END,
      updated_at = x.now, tx_hash = x.tx_hash, reason = x.reason, holder = x.holder
  FROM (
    SELECT u.signer_id, u.token, u.now, ($6::bigint[])[n*11+1] AS nonce, ($6::bigint[])[n*11+2]::smallint AS status, ($6::bigint[])[n*11+3] AS attempt,
           CASE WHEN ($6::bigint[])[n*11+2] = 1 THEN u.now + ($6::bigint[])[n*11+4] * interval '1 microsecond' END AS held_until,
           ($6::bigint[])[n*11+5]::smallint AS was_status, ($6::bigint[])[n*11+6] AS was_attempt,
           CASE WHEN ($6::bigint[])[n*11+7] > 0 THEN substring($4::bytea FROM ($6::bigint[])[n*11+7]::int FOR ($6::bigint[])[n*11+11]::int) END AS tx_hash,
           CASE WHEN ($6::bigint[])[n*11+9] > 0 THEN convert_from(substring($4::bytea FROM ($6::bigint[])[n*11+8]::int FOR ($6::bigint[])[n*11+9]::int), 'UTF8') END AS reason,
           nullif(($6::bigint[])[n*11+10], 0) AS holder
    FROM u, generate_series(u.row_mid, u.row_hi - 1) n WHERE n + 0 = n) x
  WHERE a.signer_id = x.signer_id AND a.nonce = x.nonce AND a.status = x.was_status AND a.attempt = x.was_attempt
    AND (x.status <> 1 OR a.status = 2 OR a.status = 1 AND x.attempt = a.attempt OR x.attempt > a.attempt AND x.reason = '` + nonce.ReasonRepair + `')
  RETURNING 1)`

const floorText = `
, f AS (
  UPDATE signer_nonce_allocation a
  SET status = 3, fencing_token = u.token, updated_at = u.now, reason = 'below_floor'
  FROM u
  WHERE u.below = 1 AND a.signer_id = u.signer_id AND a.status = 2 AND a.nonce < u.floor
    AND NOT EXISTS (SELECT 1 FROM generate_series(u.row_mid, u.row_hi - 1) n WHERE ($6::bigint[])[n*11+1] = a.nonce))`

const requestText = `
, q AS (
  INSERT INTO signer_nonce_request (signer_id, request_id, request_hash, nonces, attempts, created_at)
  SELECT signer_id, convert_from(substring($4::bytea FROM ($7::bigint[])[q*6+1]::int FOR ($7::bigint[])[q*6+2]::int), 'UTF8'),
         substring($4::bytea FROM ($7::bigint[])[q*6+3]::int FOR 16),
         ($8::bigint[])[($7::bigint[])[q*6+4]:($7::bigint[])[q*6+5]],
         ($8::bigint[])[($7::bigint[])[q*6+5]+1:($7::bigint[])[q*6+6]], now
  FROM (SELECT u.signer_id, u.now, generate_series(u.req_lo, u.req_hi - 1) AS q FROM u) r)`

const checkText = `
, k AS (
  SELECT ($9::bigint[])[o+1] AS ord
  FROM c, generate_series(0, cardinality($9::bigint[]) - 1, 4) o, signer_nonce_state s
  WHERE o + 0 = o AND s.signer_id = ($9::bigint[])[o+2] AND s.fencing_token = ($9::bigint[])[o+3] AND s.version = ($9::bigint[])[o+4]
    AND s.owner_node = c.owner AND s.owner_incarnation = c.incarnation` + reliableText + `)`

// encoded are the parameters of a commit statement.
type encoded struct {
	parts    parts
	runs     []int // the changes in the order of their runs; nil: not runs only
	blob     []byte
	signers  []int64
	rows     []int64
	requests []int64
	numbers  []int64
	checks   []int64
}

func encode(changes []nonce.Change) *encoded {
	rows, requests := 0, 0
	for i := range changes {
		rows, requests = rows+len(changes[i].Rows), requests+len(changes[i].Requests)
	}
	e := &encoded{
		signers:  make([]int64, 0, len(changes)*signerWidth),
		rows:     make([]int64, 0, rows*rowWidth),
		requests: make([]int64, 0, requests*requestWidth),
		numbers:  make([]int64, 0, requests*2),
		blob:     make([]byte, 1, 1+requests*requestBytes),
	}
	order := make([]int, len(changes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(changes[a].ID, changes[b].ID) })
	if !slices.ContainsFunc(changes, notRun) {
		e.parts, e.runs = partRun|partOne, order
		if requests > 0 {
			e.parts |= partRequest
		}
		if slices.ContainsFunc(changes, func(c nonce.Change) bool { return c.Rows[0].Holder != 0 }) {
			e.parts |= partHolder
		}
		for _, i := range order {
			e.addRun(&changes[i])
		}
		return e
	}
	for _, i := range order {
		e.add(int64(i), &changes[i])
	}
	return e
}

// notRun reports whether a change is more than a run: new nonces from the cursor
// on, held equally long by the same, without reason or hash, and nothing else. What the statement then adds to the
// open holds is their number.
func notRun(c nonce.Change) bool {
	if c.Check || c.BelowFloor || len(c.Rows) == 0 || c.Next != c.Rows[0].Nonce+int64(len(c.Rows)) {
		return true
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		if !r.Fresh || r.Status != nonce.Held || r.Attempt != 1 || r.Hold != c.Rows[0].Hold || r.Holder != c.Rows[0].Holder || r.Nonce != c.Rows[0].Nonce+int64(i) ||
			r.Reason != "" || r.TxHash != (nonce.TxHash{}) {
			return true
		}
	}
	return false
}

func (e *encoded) addRun(c *nonce.Change) {
	if len(c.Rows) > 1 {
		e.parts &^= partOne
	}
	e.signers = append(e.signers, c.ID, c.Token, c.Version, c.Rows[0].Nonce, int64(len(c.Rows)), int64(c.Rows[0].Hold/time.Microsecond))
	if e.parts&partHolder != 0 {
		e.signers = append(e.signers, int64(c.Rows[0].Holder))
	}
	if e.parts&partRequest != 0 {
		lo, hi := e.addRequests(c)
		e.signers = append(e.signers, lo, hi)
	}
}

func (e *encoded) add(ord int64, c *nonce.Change) {
	if c.Check {
		e.parts |= partCheck
		e.checks = append(e.checks, ord, c.ID, c.Token, c.Version)
		return
	}
	e.parts |= partWrite
	lo := int64(len(e.rows) / rowWidth)
	for i := range c.Rows {
		if c.Rows[i].Fresh {
			e.parts |= partInsert
			e.addRow(belowFloor(c, c.Rows[i]))
		}
	}
	mid := int64(len(e.rows) / rowWidth)
	for i := range c.Rows {
		if !c.Rows[i].Fresh {
			e.parts |= partUpdate
			e.addRow(belowFloor(c, c.Rows[i]))
		}
	}
	hi := int64(len(e.rows) / rowWidth)
	if len(c.Requests) > 0 {
		e.parts |= partRequest
	}
	reqLo, reqHi := e.addRequests(c)
	below := int64(0)
	if c.BelowFloor {
		e.parts |= partFloor
		below = 1
	}
	e.signers = append(e.signers, ord, c.ID, c.Token, c.Version, c.Next, c.Floor, c.Held,
		lo, mid, hi, reqLo, reqHi, below)
}

// belowFloor applies the new floor to a row of the same change: a statement
// cannot change one row twice.
func belowFloor(c *nonce.Change, r nonce.RowChange) nonce.RowChange {
	if c.BelowFloor && r.Status == nonce.Released && r.Nonce < c.Floor {
		r.Status, r.Reason = nonce.Consumed, nonce.ReasonBelowFloor
	}
	return r
}

func (e *encoded) addRow(r nonce.RowChange) {
	var hashAt, reasonAt int64
	hashes := nonce.JoinHashes(r.TxHash, r.Replaced)
	if hashes != nil {
		hashAt = e.put(hashes)
	}
	if r.Reason != "" {
		reasonAt = e.put([]byte(r.Reason))
	}
	e.rows = append(e.rows, r.Nonce, int64(r.Status), r.Attempt, int64(r.Hold/time.Microsecond),
		int64(r.FromStatus), r.FromAttempt, hashAt, reasonAt, int64(len(r.Reason)), int64(r.Holder), int64(len(hashes)))
}

// addRequests adds what a change remembers and returns where it begins and ends.
func (e *encoded) addRequests(c *nonce.Change) (lo, hi int64) {
	lo = int64(len(e.requests) / requestWidth)
	for i := range c.Requests {
		e.addRequest(&c.Requests[i])
	}
	return lo, int64(len(e.requests) / requestWidth)
}

func (e *encoded) addRequest(r *nonce.Request) {
	idAt, hashAt := e.put([]byte(r.ID)), e.put(r.Hash[:])
	lo := int64(len(e.numbers)) + 1
	e.numbers = append(e.numbers, r.Nonces...)
	mid := int64(len(e.numbers))
	e.numbers = append(e.numbers, r.Attempts...)
	e.requests = append(e.requests, idAt, int64(len(r.ID)), hashAt, lo, mid, int64(len(e.numbers)))
}

// put appends b to the byte string and returns its 1-based position in it.
func (e *encoded) put(b []byte) int64 {
	at := int64(len(e.blob)) + 1
	e.blob = append(e.blob, b...)
	return at
}

// int8s is a bigint[] in PostgreSQL's binary form, written without reflection.
type int8s []int64

const int8OID = 20

func (a int8s) encode() []byte {
	dst := make([]byte, 0, header+element*len(a))
	dst = binary.BigEndian.AppendUint32(dst, 1) // dimensions
	dst = binary.BigEndian.AppendUint32(dst, 0) // no nulls
	dst = binary.BigEndian.AppendUint32(dst, int8OID)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(a)))
	dst = binary.BigEndian.AppendUint32(dst, 1) // lower bound
	for _, v := range a {
		dst = binary.BigEndian.AppendUint32(dst, 8)
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}
