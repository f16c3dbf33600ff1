package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.EngineLedger = (*Store)(nil)

// performanceText is the condition that the performance engine serves the signer.
// So written, it does not tempt the planner into the index of all such signers.
const performanceText = ` AND s.engine + 0 = 1`

// patienceText lets a statement of this file wait longer than others for rows that
// the flush has locked: none of them is in the way of a reply, and one that gives
// up is for nothing. It holds for the transaction it begins.
const patienceText = `SELECT set_config('lock_timeout', '2000', true)`

// heldText begins the statements that move signers between the engines, or reserve
// for them. It locks the rows of those that are still the caller's, under the token
// it believes, in order of id; conditions are judged again once a row is locked, and
// nobody changes it from then on. The clock is read after that.
//
// Parameters: $1 ids, $2 tokens, $3 owner, $4 incarnation, and more arrays.
type heldText struct {
	arrays, columns string // more of what is unnested, and its names
	from, selected  string // more tables, and what is taken of them
	where           string
}

func (t heldText) String() string {
	return `w AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]` + t.arrays + `) WITH ORDINALITY w(id, token` + t.columns + `, ord)),
l AS MATERIALIZED (
  SELECT w.*, s.next_nonce` + t.selected + `
  FROM w, signer_nonce_state s` + t.from + `
  WHERE s.signer_id = w.id AND s.fencing_token = w.token AND s.owner_node = $3 AND s.owner_incarnation = $4` + t.where + `
  ORDER BY s.signer_id FOR NO KEY UPDATE OF s),
c AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM l) locked)`
}

// leaseText renews a lease by $5.
const leaseText = `expires_at = c.now + $5::bigint * interval '1 microsecond'`

// reserveText: $5 ttl, $6 grant, $7 longest hold, $8 ceilings. Nothing of it ever falls.
var reserveText = `
WITH ` + heldText{arrays: ", $8::bigint[]", columns: ", ceiling", where: performanceText}.String() + `,
g AS (
  UPDATE signer_nonce_engine e
  SET ceiling = greatest(e.ceiling, l.ceiling), grant_until = greatest(e.grant_until, c.now + $6::bigint * interval '1 microsecond'),
      longest_hold = greatest(e.longest_hold, $7::bigint * interval '1 microsecond')
  FROM l, c WHERE e.signer_id = l.id
  RETURNING l.ord, e.ceiling, e.grant_until),
u AS (UPDATE signer_nonce_state s SET ` + leaseText + ` FROM l, c WHERE s.signer_id = l.id)
SELECT c.now, g.ord, g.ceiling, g.grant_until FROM c LEFT JOIN g ON true`

// enterText: as reserveText, $9 versions, $10 and $11 identities. The cluster's row
// is locked too, so that nobody enters once its state is another one. The doubt is
// of the version: a later loss has another. Below which nonce it was stays, for late
// marks of holds that were lost.
var enterText = `
WITH a AS MATERIALIZED (SELECT acceptance FROM engine_cluster WHERE state = 'PERFORMANCE' FOR SHARE),
` + heldText{
	arrays: ", $8::bigint[], $9::bigint[], $10::text[], $11::text[]", columns: ", ceiling, version, run_id, repl_id",
	from: ", a, engine_redis r", selected: ", r.redis_id",
	where: ` AND s.version = w.version` + reliableText + `
    AND NOT EXISTS (SELECT 1 FROM signer_nonce_engine e WHERE e.signer_id = w.id AND e.doubt_until > clock_timestamp())
    AND r.run_id = w.run_id AND r.repl_id = w.repl_id AND r.acceptance = a.acceptance`,
}.String() + `,
g AS (
  INSERT INTO signer_nonce_engine AS e (signer_id, redis_id, ceiling, grant_until, longest_hold)
  SELECT l.id, l.redis_id, l.ceiling, c.now + $6::bigint * interval '1 microsecond', $7::bigint * interval '1 microsecond' FROM l, c
  ON CONFLICT (signer_id) DO UPDATE
  SET redis_id = EXCLUDED.redis_id, ceiling = greatest(e.ceiling, EXCLUDED.ceiling), grant_until = greatest(e.grant_until, EXCLUDED.grant_until),
      longest_hold = greatest(e.longest_hold, EXCLUDED.longest_hold), doubt_until = NULL
  RETURNING e.signer_id, e.ceiling, e.grant_until),
u AS (
  UPDATE signer_nonce_state s SET engine = 1, ` + leaseText + ` FROM l, c, g WHERE s.signer_id = l.id AND g.signer_id = l.id
  RETURNING l.ord, g.ceiling, g.grant_until)
SELECT c.now, u.ord, u.ceiling, u.grant_until FROM c LEFT JOIN u ON true`

// returnText: $5 versions.
var returnText = `
WITH ` + heldText{arrays: ", $5::bigint[]", columns: ", version", where: ` AND s.version = w.version` + performanceText}.String() + `,
u AS (
  UPDATE signer_nonce_state s SET engine = 0, updated_at = c.now
  FROM l, c WHERE s.signer_id = l.id
  RETURNING l.ord)
SELECT c.now, u.ord FROM c LEFT JOIN u ON true`

// loseLocks comes before loseText, in a statement of its own: that one must see the
// allocations of a flush that has the row locked until then.
const loseLocks = `
SELECT s.signer_id FROM unnest($1::bigint[]) w(id), signer_nonce_state s
WHERE s.signer_id = w.id ORDER BY s.signer_id FOR NO KEY UPDATE OF s`

// loseText makes rows for the nonces that Redis may have handed out. The doubtful
// holds end with the doubt, so that until then they are not due, nor in the way of
// those that are; what their holders were told is kept. $5 margin.
var loseText = `
WITH ` + heldText{where: performanceText}.String() + `,
g AS (
  UPDATE signer_nonce_engine e
  SET doubt_below = e.ceiling, doubt_until = e.grant_until + e.longest_hold + $5::bigint * interval '1 microsecond'
  FROM l WHERE e.signer_id = l.id
  RETURNING l.ord, l.id, l.next_nonce, e.doubt_below, e.doubt_until),
u AS (
  UPDATE signer_nonce_state s
  SET engine = 0, version = ((s.version >> 32) + 1) << 32, next_nonce = greatest(s.next_nonce, g.doubt_below), updated_at = c.now
  FROM g, c WHERE s.signer_id = g.id
  RETURNING g.ord, s.signer_id, s.fencing_token, s.held, g.next_nonce AS first, g.doubt_below, g.doubt_until, c.now),
i AS (
  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, created_at, updated_at, reason)
  SELECT u.signer_id, n, 2, 0, u.fencing_token, u.now, u.now, '` + nonce.ReasonInDoubt + `' FROM u, generate_series(u.first, u.doubt_below - 1) n
  ON CONFLICT DO NOTHING),
h AS (
  UPDATE signer_nonce_allocation a
  SET held_until = greatest(a.held_until, u.doubt_until), promised_until = a.held_until, updated_at = u.now
  FROM u, LATERAL (SELECT x.nonce FROM (SELECT u.signer_id, u.held) s, LATERAL (` + openHolds + `) x) open
  WHERE a.signer_id = u.signer_id AND a.nonce = open.nonce AND a.nonce < u.doubt_below AND a.status = 1)
SELECT c.now, u.ord FROM c LEFT JOIN u ON true`

// Reserve implements nonce.EngineLedger.
func (s *Store) Reserve(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []nonce.ReserveTerm) ([]nonce.Reserved, time.Time, error) {
	ids, tokens := keys(terms, func(t nonce.ReserveTerm) (int64, int64) { return t.ID, t.Token })
	ceilings := make([]int64, len(terms))
	for i, t := range terms {
		ceilings[i] = t.Ceiling
	}
	b := patient()
	b.Queue(reserveText, ids, tokens, h.Node, h.Incarnation, ttl.Microseconds(), grant.Microseconds(), longestHold.Microseconds(), ceilings)
	return s.reserved(ctx, "reserve nonces", b, len(terms))
}

// Enter implements nonce.EngineLedger.
func (s *Store) Enter(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []nonce.MoveTerm) ([]nonce.Reserved, time.Time, error) {
	ids, tokens := keys(terms, func(t nonce.MoveTerm) (int64, int64) { return t.ID, t.Token })
	ceilings, versions := keys(terms, func(t nonce.MoveTerm) (int64, int64) { return t.Ceiling, t.Version })
	runs, repls := keys(terms, func(t nonce.MoveTerm) (string, string) { return t.Identity.RunID, t.Identity.ReplID })
	b := patient()
	b.Queue(enterText, ids, tokens, h.Node, h.Incarnation, ttl.Microseconds(), grant.Microseconds(), longestHold.Microseconds(), ceilings, versions, runs, repls)
	return s.reserved(ctx, "enter the performance engine", b, len(terms))
}

// Return implements nonce.EngineLedger.
func (s *Store) Return(ctx context.Context, h lease.Holder, terms []nonce.MoveTerm) ([]bool, error) {
	ids, tokens := keys(terms, func(t nonce.MoveTerm) (int64, int64) { return t.ID, t.Token })
	_, versions := keys(terms, func(t nonce.MoveTerm) (int64, int64) { return t.ID, t.Version })
	b := patient()
	b.Queue(returnText, ids, tokens, h.Node, h.Incarnation, versions)
	return s.moved(ctx, "return to the reliable engine", b, len(terms))
}

// Lose implements nonce.EngineLedger.
func (s *Store) Lose(ctx context.Context, h lease.Holder, margin time.Duration, terms []nonce.ReserveTerm) ([]bool, error) {
	ids, tokens := keys(terms, func(t nonce.ReserveTerm) (int64, int64) { return t.ID, t.Token })
	b := patient()
	b.Queue(loseLocks, ids)
	b.Queue(loseText, ids, tokens, h.Node, h.Incarnation, margin.Microseconds())
	return s.moved(ctx, "declare signers lost", b, len(terms))
}

func keys[T, K any](terms []T, of func(T) (K, K)) (a, b []K) {
	a, b = make([]K, len(terms)), make([]K, len(terms))
	for i, t := range terms {
		a[i], b[i] = of(t)
	}
	return a, b
}

func patient() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(patienceText)
	return b
}

// reserved runs a batch whose last statement answers with what is reserved.
func (s *Store) reserved(ctx context.Context, doing string, b *pgx.Batch, n int) ([]nonce.Reserved, time.Time, error) {
	out := make([]nonce.Reserved, n)
	var now time.Time
	b.QueuedQueries[b.Len()-1].Query(func(rows pgx.Rows) error {
		var ord, ceiling *int64
		var until *time.Time
		_, err := pgx.ForEachRow(rows, []any{&now, &ord, &ceiling, &until}, func() error {
			if ord != nil {
				out[*ord-1] = nonce.Reserved{Applied: true, Ceiling: *ceiling, GrantUntil: *until}
			}
			return nil
		})
		return err
	})
	if err := s.write(ctx, doing, b); err != nil {
		return nil, time.Time{}, err
	}
	return out, now, nil
}

// moved runs a batch whose last statement answers with the ordinals of what it did.
func (s *Store) moved(ctx context.Context, doing string, b *pgx.Batch, n int) ([]bool, error) {
	out := make([]bool, n)
	b.QueuedQueries[b.Len()-1].Query(func(rows pgx.Rows) error {
		var now time.Time
		var ord *int64
		_, err := pgx.ForEachRow(rows, []any{&now, &ord}, func() error {
			if ord != nil {
				out[*ord-1] = true
			}
			return nil
		})
		return err
	})
	if err := s.write(ctx, doing, b); err != nil {
		return nil, err
	}
	return out, nil
}

// write runs a batch as one implicit transaction in one round trip.
func (s *Store) write(ctx context.Context, doing string, b *pgx.Batch) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return storeError(doing, err)
	}
	if syncRepCancelled(conn.Conn().PgConn()) {
		return errSyncRep
	}
	return nil
}
