package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

// Conditions of an allocation x. The first and the second are found by the index of what
// stands out, signer_nonce_allocation_notable, the third by that of RELEASED ones. So
// written, the first does not tempt the planner into the index of all holds.
const (
	isUnknown  = `x.status <> 3 AND x.status + 0 = 1 AND x.reason = '` + nonce.ReasonUnknown + `'`
	isRepeated = `x.status <> 3 AND x.attempt >= 3`
	isFree     = `x.status = 2`
)

var bound = strconv.Itoa(nonce.TotalsBound)

// freeOf is what is RELEASED of a signer s at or above its floor.
const freeOf = `LATERAL (
  SELECT count(*) AS count, min(x.nonce) AS lowest, max(x.attempt) AS attempt FROM signer_nonce_allocation x
  WHERE x.signer_id = s.signer_id AND ` + isFree + ` AND x.nonce >= s.floor) free`

// isGap: not all that is above the lowest RELEASED nonce is RELEASED too.
const isGap = ` AND free.count > 0 AND free.count < s.next_nonce - free.lowest`

// candidates are the signers s of at most the first TotalsBound allocations that are as
// wanted. signer_id > 0 is true of all, and makes the planner walk the index.
func candidates(wanted, order string) string {
	return `(SELECT DISTINCT found.signer_id FROM (
    SELECT x.signer_id FROM signer_nonce_allocation x WHERE ` + wanted + ` ORDER BY ` + order + ` LIMIT ` + bound + `) found) found
  JOIN signer_nonce_state s ON s.signer_id = found.signer_id`
}

// pageText chooses the signers s of a page. Those of all it finds by
// signer_nonce_state_name, in whose order it walks, named ones by their names, and those
// of a filter by the index that has what the filter is about.
//
// Parameters: $1 after, $2 limit, $3 names, if named.
func pageText(filter nonce.SignerFilter, named bool) string {
	from, where := `signer_nonce_state s`, ""
	if named {
		from = `(SELECT DISTINCT w.signer FROM unnest($3::text[]) w(signer)) w JOIN signer_nonce_state s ON s.signer = w.signer`
	}
	// found narrows it to those with such an allocation. The limit keeps the planner from
	// walking all of these where there were few when it looked.
	found := func(wanted string) {
		if !named {
			from = candidates(wanted+` AND x.signer_id > 0`, "x.signer_id, x.nonce")
			return
		}
		from += `, LATERAL (SELECT 1 FROM signer_nonce_allocation x WHERE x.signer_id = s.signer_id AND ` + wanted + ` LIMIT 1) found`
	}
	switch filter {
	case nonce.GapSigners:
		found(isFree)
		from, where = from+`, `+freeOf, isGap
	case nonce.UnknownSigners:
		found(isUnknown)
	case nonce.RepeatSigners:
		found(isRepeated)
	case nonce.OverdueSigners:
		const overdue = `x.held_until <= (SELECT now FROM c) AND NOT ` + unknownText
		if !named {
			from = candidates(`x.status = 1 AND `+overdue, "x.held_until")
		} else {
			from += `, LATERAL (SELECT 1 FROM (` + openHolds + `) x WHERE ` + overdue + ` LIMIT 1) found`
		}
	}
	return `SELECT s.* FROM ` + from + ` WHERE s.signer COLLATE "C" > $1` + where + ` ORDER BY s.signer COLLATE "C" LIMIT $2`
}

// figuresText adds the figures of the signers of a page: of each its RELEASED rows and, by
// a walk from the top of the primary key, its HELD rows are read.
func figuresText(filter nonce.SignerFilter, named bool) string {
	return `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
page AS MATERIALIZED (` + pageText(filter, named) + `)
SELECT s.signer, s.next_nonce, s.floor, s.version, s.held,
       open.unknown, free.count, coalesce(free.lowest, -1), open.oldest, greatest(free.attempt, open.attempt, 0),
       CASE WHEN s.expires_at > c.now THEN coalesce(s.owner_node, '') ELSE '' END
FROM c, page s, ` + freeOf + `,
LATERAL (SELECT min(coalesce(x.promised_until, x.held_until)) AS oldest, max(x.attempt) AS attempt,
                count(*) FILTER (WHERE ` + unknownText + `) AS unknown FROM (` + openHolds + `) x) open
ORDER BY s.signer COLLATE "C"`
}

// Signers implements nonce.Reader: one statement, see figuresText.
func (s *Store) Signers(ctx context.Context, q nonce.SignersQuery) ([]nonce.SignerFigures, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	args := []any{q.After, q.Limit}
	if q.Names != nil {
		args = append(args, q.Names)
	}
	rows, err := conn.Query(ctx, figuresText(q.Filter, q.Names != nil), args...)
	if err != nil {
		return nil, storeError("list signers", err)
	}
	var out []nonce.SignerFigures
	var f nonce.SignerFigures
	var oldest *time.Time
	_, err = pgx.ForEachRow(rows, []any{
		&f.Signer, &f.Next, &f.Floor, &f.Version, &f.Held, &f.Unknown, &f.Released, &f.LowestReleased, &oldest, &f.MaxAttempt, &f.Owner,
	}, func() error {
		f.OldestHold = orZero(oldest)
		out = append(out, f)
		return nil
	})
	return out, storeError("list signers", err)
}

// totalText counts by the indexes of deadlines, of what stands out and of RELEASED rows,
// each no further than TotalsBound. The first hold that is overdue is looked for among
// the earliest deadlines (dueWindow), since there may be unknown holds before it.
var totalText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT ` + countText(`x.status = 1 AND x.held_until > '-infinity'`) + `, ` + countText(isUnknown+` AND x.signer_id > 0`) + `,
       ` + countText(isFree+` AND x.signer_id > 0`) + `, ` + countText(isRepeated+` AND x.signer_id > 0`) + `, c.now,
       (SELECT min(x.held_until) FROM (
          SELECT x.held_until, x.reason FROM signer_nonce_allocation x
          WHERE x.status = 1 AND x.held_until <= (SELECT now FROM c) ORDER BY x.held_until LIMIT ` + dueWindow + `) x
        WHERE NOT ` + unknownText + `)
FROM c`

func countText(wanted string) string {
	return `(SELECT count(*) FROM (SELECT 1 FROM signer_nonce_allocation x WHERE ` + wanted + ` LIMIT ` + bound + `) counted)`
}

// Totals implements nonce.Reader: one statement, see totalText.
func (s *Store) Totals(ctx context.Context) (nonce.Totals, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nonce.Totals{}, err
	}
	defer conn.Release()
	var t nonce.Totals
	var now time.Time
	var first *time.Time
	if err := conn.QueryRow(ctx, totalText).Scan(&t.Held, &t.Unknown, &t.Released, &t.Repeated, &now, &first); err != nil {
		return nonce.Totals{}, storeError("count what is open", err)
	}
	if first != nil {
		t.OldestOverdue = now.Sub(*first)
	}
	return t, nil
}
