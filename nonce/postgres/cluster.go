package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

var _ nonce.EngineCatalog = (*Store)(nil)

const clusterText = `
SELECT c.state, c.goal, c.generation, c.reason, c.changed_by, c.changed_at, c.observe_until, coalesce(c.flush_shards, 0),
       ARRAY(SELECT r.run_id FROM engine_redis r WHERE r.acceptance = c.acceptance ORDER BY r.redis_id),
       ARRAY(SELECT r.repl_id FROM engine_redis r WHERE r.acceptance = c.acceptance ORDER BY r.redis_id), clock_timestamp()
FROM engine_cluster c`

// EngineState implements nonce.EngineCatalog.
func (s *Store) EngineState(ctx context.Context) (nonce.EngineCluster, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nonce.EngineCluster{}, err
	}
	defer conn.Release()
	c, err := scanCluster(conn.QueryRow(ctx, clusterText))
	if err != nil {
		return nonce.EngineCluster{}, storeError("read the state of the cluster", err)
	}
	return c, nil
}

func scanCluster(row pgx.Row) (c nonce.EngineCluster, err error) {
	var runs, repls []string
	var observe *time.Time
	err = row.Scan(&c.State, &c.Goal, &c.Generation, &c.Reason, &c.By, &c.ChangedAt, &observe, &c.FlushShards, &runs, &repls, &c.Now)
	c.ObserveUntil = orZero(observe)
	for i := range runs {
		c.Accepted = append(c.Accepted, nonce.Identity{RunID: runs[i], ReplID: repls[i]})
	}
	return c, err
}

// clusterLock comes before the statements that change the cluster's row, so that
// these see the signers that were entering when the row was locked.
const clusterLock = `SELECT 1 FROM engine_cluster FOR UPDATE`

// switchText: $1 generation, $2 state, $3 goal, $4 reason, $5 by, $6 observe. While
// signers may enter, programs that know one engine only are not to open the
// database: they would write to such signers without looking.
const switchText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
k AS MATERIALIZED (
  SELECT $2::text = 'RELIABLE' AND EXISTS (SELECT 1 FROM signer_nonce_state s WHERE s.engine = 1 AND s.signer_id > 0) AS entered,
         $2::text IN ('DUAL_WRITE', 'PERFORMANCE') AND EXISTS (
           SELECT 1 FROM gateway_node g WHERE g.live AND g.seen_at + g.patience > c.now AND g.engines < 2) AS old
  FROM c),
u AS (
  UPDATE engine_cluster e
  SET state = $2, goal = $3, generation = e.generation + 1, reason = $4, changed_by = $5, changed_at = c.now,
      observe_until = CASE WHEN $6::bigint > 0 THEN c.now + $6::bigint * interval '1 microsecond' ELSE e.observe_until END
  FROM c, k WHERE e.generation = $1 AND NOT k.entered AND NOT k.old
  RETURNING e.state),
b AS (
  UPDATE noncegate_schema SET breaking_level = CASE u.state WHEN 'PERFORMANCE' THEN greatest(breaking_level, 2) ELSE 1 END
  FROM u WHERE u.state = 'PERFORMANCE' OR u.state = 'RELIABLE' AND breaking_level = 2)
SELECT k.entered, k.old, EXISTS (SELECT 1 FROM u) FROM k`

// SwitchEngine implements nonce.EngineCatalog.
func (s *Store) SwitchEngine(ctx context.Context, t nonce.SwitchTerm) (nonce.EngineCluster, error) {
	if t.Goal == "" {
		t.Goal = t.To
	}
	var c nonce.EngineCluster
	var entered, old, done bool
	b := patient()
	b.Queue(clusterLock)
	b.Queue(switchText, t.FromGeneration, string(t.To), string(t.Goal), t.Reason, t.By, t.Observe.Microseconds()).QueryRow(func(row pgx.Row) error {
		return row.Scan(&entered, &old, &done)
	})
	b.Queue(clusterText).QueryRow(func(row pgx.Row) (err error) {
		c, err = scanCluster(row)
		return err
	})
	err := s.write(ctx, "switch the engine", b)
	switch {
	case err != nil:
		return nonce.EngineCluster{}, err
	case done:
		return c, nil
	case c.Generation != t.FromGeneration:
		return c, nonce.ErrGeneration
	case entered:
		return c, nonce.ErrEntered
	case old:
		return c, nonce.ErrOldNodes
	}
	return c, nonce.ErrGeneration
}

// acceptText: $1 generation, $2 and $3 identities.
const acceptText = `
WITH u AS (UPDATE engine_cluster SET acceptance = acceptance + 1 WHERE generation = $1 RETURNING acceptance),
r AS (
  INSERT INTO engine_redis (run_id, repl_id, acceptance, accepted_at)
  SELECT i.run_id, i.repl_id, u.acceptance, clock_timestamp() FROM u, (SELECT DISTINCT * FROM unnest($2::text[], $3::text[])) i(run_id, repl_id)
  ON CONFLICT (run_id, repl_id) DO UPDATE SET acceptance = EXCLUDED.acceptance, accepted_at = EXCLUDED.accepted_at)
SELECT EXISTS (SELECT 1 FROM u)`

// AcceptIdentities implements nonce.EngineCatalog.
func (s *Store) AcceptIdentities(ctx context.Context, generation int64, ids []nonce.Identity) error {
	runs, repls := keys(ids, func(id nonce.Identity) (string, string) { return id.RunID, id.ReplID })
	var done bool
	b := patient()
	b.Queue(clusterLock)
	b.Queue(acceptText, generation, runs, repls).QueryRow(func(row pgx.Row) error { return row.Scan(&done) })
	if err := s.write(ctx, "accept Redis servers", b); err != nil {
		return err
	}
	if !done {
		return nonce.ErrGeneration
	}
	return nil
}

// FlushShards implements nonce.EngineCatalog.
func (s *Store) FlushShards(ctx context.Context, wanted int) (int, error) {
	var shards int
	b := &pgx.Batch{}
	b.Queue(`UPDATE engine_cluster SET flush_shards = $1 WHERE flush_shards IS NULL`, wanted)
	b.Queue(`SELECT flush_shards FROM engine_cluster`).QueryRow(func(row pgx.Row) error { return row.Scan(&shards) })
	if err := s.write(ctx, "fix the number of flush shards", b); err != nil {
		return 0, err
	}
	return shards, nil
}

// countsText reads the partial indexes of both engines' signers.
const countsText = `
SELECT c.now, count(s.signer_id), count(s.signer_id) FILTER (WHERE s.expires_at <= c.now), min(e.grant_until),
       (SELECT count(*) FROM signer_nonce_engine d WHERE d.doubt_until > (SELECT clock_timestamp())),
       (SELECT max(d.doubt_until) FROM signer_nonce_engine d WHERE d.doubt_until > (SELECT clock_timestamp()))
FROM (SELECT clock_timestamp() AS now) c LEFT JOIN signer_nonce_state s ON s.engine = 1 AND s.signer_id > 0
` + engineJoin + `
GROUP BY c.now`

// EngineCounts implements nonce.EngineCatalog.
func (s *Store) EngineCounts(ctx context.Context) (nonce.EngineCounts, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nonce.EngineCounts{}, err
	}
	defer conn.Release()
	var c nonce.EngineCounts
	var grant, doubt *time.Time
	if err := conn.QueryRow(ctx, countsText).Scan(&c.Now, &c.Entered, &c.Unowned, &grant, &c.Doubtful, &doubt); err != nil {
		return nonce.EngineCounts{}, storeError("count the signers of the engines", err)
	}
	c.GrantUntil, c.DoubtUntil = orZero(grant), orZero(doubt)
	return c, nil
}
