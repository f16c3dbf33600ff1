package postgres

import (
	"time"

	"noncegate/nonce"
)

// signerColumns are what a snapshot says of a signer's row s, with what signerJoins
// join: the registration g of its owner, what the engines keep of it e, and the Redis
// r that has it.
const signerColumns = `coalesce(s.signer_id, 0), coalesce(s.next_nonce, 0), coalesce(s.floor, 0), coalesce(s.version, 0), coalesce(s.held, 0), coalesce(s.pruned, 0),
       coalesce(s.fencing_token, 0), coalesce(s.owner_node, ''), coalesce(s.owner_incarnation, 0), s.expires_at, coalesce(g.url, ''),
       ` + standingColumns + `, clock_timestamp()`

// standingColumns are those of a Standing.
const standingColumns = `coalesce(s.engine, 0), coalesce(r.run_id, ''), coalesce(r.repl_id, ''), coalesce(e.ceiling, 0), e.grant_until,
       coalesce(e.longest_hold, interval '0'), coalesce(e.doubt_below, 0), e.doubt_until`

const signerJoins = `
LEFT JOIN gateway_node g ON g.node_id = s.owner_node
` + engineJoin + `
LEFT JOIN engine_redis r ON r.redis_id = e.redis_id AND s.engine = 1`

// engineJoin finds what the engines keep of a signer s. The limit keeps the planner from
// reading the table as a whole where it was small when the statement was prepared.
const engineJoin = `LEFT JOIN LATERAL (SELECT * FROM signer_nonce_engine k WHERE k.signer_id = s.signer_id LIMIT 1) e ON true`

// doubtText is the nonce below which a signer is in doubt of whom e is. The clock is read once,
// so that it can be part of an index condition.
const doubtText = `CASE WHEN e.doubt_until > (SELECT clock_timestamp()) THEN e.doubt_below ELSE 0 END`

// standingRow scans standingColumns.
type standingRow struct {
	engine            int16
	granted, doubtful *time.Time
}

func (r *standingRow) into(s *nonce.Standing) []any {
	return []any{
		&r.engine, &s.Identity.RunID, &s.Identity.ReplID, &s.Ceiling, &r.granted, &s.LongestHold, &s.DoubtBelow, &r.doubtful,
	}
}

func (r *standingRow) finish(s *nonce.Standing) {
	s.Engine, s.GrantUntil, s.DoubtUntil = nonce.Engine(r.engine), orZero(r.granted), orZero(r.doubtful)
}

// signerRow scans signerColumns.
type signerRow struct {
	standingRow
	expires *time.Time
}

func (r *signerRow) into(s *nonce.Snapshot) []any {
	lease := &s.Lease
	columns := []any{
		&s.ID, &s.Next, &s.Floor, &s.Version, &s.Held, &s.Pruned,
		&lease.Token, &lease.Holder.Node, &lease.Holder.Incarnation, &r.expires, &lease.URL,
	}
	return append(append(columns, r.standingRow.into(&s.Standing)...), &s.Now)
}

func (r *signerRow) finish(s *nonce.Snapshot) {
	s.Exists, s.Lease.ExpiresAt = s.ID != 0, orZero(r.expires)
	r.standingRow.finish(&s.Standing)
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
