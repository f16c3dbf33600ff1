package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.LogStore = (*Store)(nil)

const (
	// The shards' rows are locked first, as by a commit: nobody takes one meanwhile, and
	// none of them was taken. A signer that has none gets a row of version 0. One whose
	// ceiling is of an earlier epoch is to be mended first.
	reserveCeilings = `
WITH w AS (SELECT * FROM unnest($3::int[], $4::text[], $5::int[], $6::bigint[], $7::bigint[]) AS w(ord, signer, shard_id, token, ceiling)),
owned AS MATERIALIZED (
    SELECT s.shard_id, s.fencing_token, s.epoch FROM shard s
    WHERE s.shard_id = ANY ($5::int[]) AND s.owner_node = $1 AND s.owner_incarnation = $2 AND s.performance ORDER BY s.shard_id FOR SHARE)
INSERT INTO signer AS s (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at, ceiling, epoch)
SELECT w.signer, w.shard_id, 0, 0, 0, 0, '', store_millis(), w.ceiling, l.epoch
FROM w JOIN owned l ON l.shard_id = w.shard_id AND l.fencing_token = w.token ORDER BY w.signer
ON CONFLICT (signer) DO UPDATE SET ceiling = greatest(s.ceiling, excluded.ceiling), epoch = excluded.epoch
WHERE s.epoch = excluded.epoch OR s.ceiling = 0
RETURNING s.signer`

	turnOn = `
UPDATE shard SET performance = true, log_identity = $5, log_shipped = 0, grant_until = greatest(grant_until, store_millis() + $6), longest_hold = greatest(longest_hold, $7)
WHERE shard_id = $1 AND owner_node = $2 AND owner_incarnation = $3 AND fencing_token = $4 AND NOT performance`

	declareLost = `
UPDATE shard SET performance = false, epoch = epoch + 1, doubt_until = grant_until + longest_hold + $5
WHERE shard_id = $1 AND owner_node = $2 AND owner_incarnation = $3 AND fencing_token = $4 AND performance`

	rehearsed = `
UPDATE shard s SET rehearsed = $5 FROM unnest($3::int[], $4::bigint[]) AS t(shard, token)
WHERE s.shard_id = t.shard AND s.fencing_token = t.token AND s.owner_node = $1 AND s.owner_incarnation = $2 AND NOT s.performance`

	engineColumns = `change, performance, degraded, reason, rehearse, at`
	readEngine    = `SELECT ` + engineColumns + ` FROM gateway_engine`
	setEngine     = `
UPDATE gateway_engine SET change = change + 1, performance = $2, degraded = $3, reason = $4, rehearse = $5, at = store_millis() WHERE change = $1`
)

// ship packs the shards of a shipment. It comes after the writes, whose shards are known then.
func (p *packed) ship(shards []nonce.ShippedShard) {
	for i := range shards {
		p.place(shards[i].Term.Shard)
	}
	n := len(shipNumbers)
	ships := make([]int64, n*len(p.shards))
	for i := range shards {
		s := &shards[i]
		at := ships[n*(p.place(s.Term.Shard)-1):]
		at[0], at[1] = belief(s.Term), s.Head
		if s.Off {
			at[2] = 1
		}
	}
	for _, place := range p.places {
		ships[n*(place-1)+3]++
	}
	p.ships = noBigints(p.ships)
	p.ships.add(ships...)
}

// Reserve implements nonce.LogStore.
func (s *Store) Reserve(ctx context.Context, h lease.Holder, ceilings []nonce.Ceiling) ([]bool, error) {
	out := make([]bool, len(ceilings))
	at := make(map[string]int, len(ceilings))
	var ords, shards []int
	var names []string
	var tokens, nexts []int64
	for i, c := range ceilings {
		at[c.Name] = i
		ords, names, shards = append(ords, i), append(names, c.Name), append(shards, nonce.ShardOf(c.Name, s.shards))
		tokens, nexts = append(tokens, c.Term.Token), append(nexts, c.Next)
	}
	b := &pgx.Batch{}
	b.Queue(reserveCeilings, h.Node, h.Incarnation, ords, names, shards, tokens, nexts).Query(func(rows pgx.Rows) error {
		var name string
		_, err := pgx.ForEachRow(rows, []any{&name}, func() error {
			out[at[name]] = true
			return nil
		})
		return err
	})
	return out, roundTrip(ctx, s.pool, "reserve nonces", b)
}

// changesShard changes the row of a shard, and reports whether it was as it was believed to be.
func (s *Store) changesShard(ctx context.Context, doing string, shard int, text string, args ...any) (changed bool, err error) {
	rows, err := s.changeShards(ctx, doing, []int{shard}, text, args...)
	return rows > 0, err
}

// TurnOn implements nonce.LogStore.
func (s *Store) TurnOn(ctx context.Context, h lease.Holder, t lease.ShardTerm, identity string, g nonce.Grant) (bool, error) {
	return s.changesShard(ctx, "turn on the log", t.Shard, turnOn, t.Shard, h.Node, h.Incarnation, t.Token, identity, g.For.Milliseconds(), g.LongestHold.Milliseconds())
}

// Declare implements nonce.LogStore.
func (s *Store) Declare(ctx context.Context, h lease.Holder, t lease.ShardTerm, margin time.Duration) (bool, error) {
	return s.changesShard(ctx, "declare the log lost", t.Shard, declareLost, t.Shard, h.Node, h.Incarnation, t.Token, margin.Milliseconds())
}

// Rehearsed implements nonce.LogStore.
func (s *Store) Rehearsed(ctx context.Context, h lease.Holder, terms []lease.ShardTerm, change int64) error {
	shards, tokens := make([]int, len(terms)), make([]int64, len(terms))
	for i, t := range terms {
		shards[i], tokens[i] = t.Shard, t.Token
	}
	_, err := s.changeShards(ctx, "note a rehearsal", shards, rehearsed, h.Node, h.Incarnation, shards, tokens, change)
	return err
}

// Engine implements nonce.LogStore.
func (s *Store) Engine(ctx context.Context) (g nonce.EngineGoal, err error) {
	err = s.moment(ctx, "read which engine is wanted", func(b *pgx.Batch) { queueEngine(b, &g) })
	return g, err
}

func queueEngine(b *pgx.Batch, g *nonce.EngineGoal) {
	b.Queue(readEngine).QueryRow(func(row pgx.Row) error {
		var rehearse, at int64
		err := row.Scan(&g.Change, &g.Performance, &g.Degraded, &g.Reason, &rehearse, &at)
		g.Rehearse, g.At = time.Duration(rehearse)*time.Millisecond, time.UnixMilli(at)
		return err
	})
}

// SetEngine implements nonce.LogStore.
func (s *Store) SetEngine(ctx context.Context, from int64, goal nonce.EngineGoal) (g nonce.EngineGoal, err error) {
	b := &pgx.Batch{}
	b.Queue(setEngine, from, goal.Performance, goal.Degraded, goal.Reason, goal.Rehearse.Milliseconds())
	queueEngine(b, &g)
	return g, roundTrip(ctx, s.pool, "say which engine is wanted", b)
}
