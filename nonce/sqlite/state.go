package sqlite

import (
	"context"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// The signer's row. All statements find it by its key or by the unique name.
const (
	sqlTake = `
UPDATE signer_nonce_state SET owner_node = ?1, owner_incarnation = ?2, fencing_token = fencing_token + 1, acquired_at = ?3, expires_at = ?4
WHERE signer = ?5 AND (owner_node IS NULL OR expires_at <= ?3 OR owner_node = ?1 AND owner_incarnation <= ?2)`

	sqlCreateTaken = `
INSERT INTO signer_nonce_state (signer, owner_node, owner_incarnation, fencing_token, acquired_at, expires_at, updated_at)
VALUES (?5, ?1, ?2, 1, ?3, ?4, ?3) ON CONFLICT (signer) DO NOTHING`

	sqlOwner = `SELECT coalesce(owner_node, '') FROM signer_nonce_state WHERE signer = ?`

	sqlCreate = `INSERT INTO signer_nonce_state (signer, updated_at) VALUES (?, ?) ON CONFLICT (signer) DO NOTHING`

	// The fence. The rows of a change are written only when this changed one row.
	sqlFence = `
UPDATE signer_nonce_state SET version = version + 1, next_nonce = ?, floor = ?, held = ?, updated_at = ?, expires_at = ?
WHERE signer_id = ? AND owner_node = ? AND owner_incarnation = ? AND fencing_token = ? AND version = ?`

	sqlFenceCheck = `
SELECT count(*) FROM signer_nonce_state
WHERE signer_id = ? AND owner_node = ? AND owner_incarnation = ? AND fencing_token = ? AND version = ?`

	sqlFenceLocked = `
UPDATE signer_nonce_state SET version = version + 1, next_nonce = ?, floor = ?, held = ?, updated_at = ?
WHERE signer_id = ? AND version = ?`

	sqlRelease = `
UPDATE signer_nonce_state SET owner_node = NULL, fencing_token = fencing_token + 1, expires_at = ?
WHERE signer_id = ? AND owner_node = ? AND owner_incarnation = ? AND fencing_token = ?`

	leaseColumns = `coalesce(s.owner_node, ''), CASE WHEN s.owner_node IS NULL THEN 0 ELSE s.owner_incarnation END,
    coalesce(n.url, ''), s.fencing_token, coalesce(s.expires_at, 0)`
	stateAndNode = `signer_nonce_state s LEFT JOIN gateway_node n ON n.node = s.owner_node`

	sqlState = `
SELECT s.signer_id, s.next_nonce, s.floor, s.version, s.held, s.pruned, ` + leaseColumns + ` FROM ` + stateAndNode + ` WHERE s.signer = ?`

	sqlLease = `SELECT s.signer, ` + leaseColumns + ` FROM ` + stateAndNode + ` WHERE s.signer_id = ?`
)

// take takes the signer's lease, or creates the signer with it. It reports
// whether it did, and from which other node.
func (c *session) take(ctx context.Context, h lease.Holder, ttl time.Duration, signer string, now time.Time) (ok bool, from string, err error) {
	if _, err := c.one(ctx, []any{&from}, sqlOwner, signer); err != nil {
		return false, "", err
	}
	if from == h.Node {
		from = ""
	}
	args := []any{h.Node, h.Incarnation, now.UnixMicro(), now.Add(ttl).UnixMicro(), signer}
	for _, query := range []string{sqlTake, sqlCreateTaken} {
		if n, err := c.exec(ctx, query, args...); err != nil || n > 0 {
			return n > 0, from, err
		}
	}
	return false, "", nil
}

// fence changes the signer's row on the condition of the change, and reports
// whether it holds.
func (c *session) fence(ctx context.Context, h lease.Holder, ttl time.Duration, ch *nonce.Change, now time.Time) (bool, error) {
	if ch.Check {
		n, err := c.count(ctx, sqlFenceCheck, ch.ID, h.Node, h.Incarnation, ch.Token, ch.Version)
		return n > 0, err
	}
	n, err := c.exec(ctx, sqlFence, ch.Next, ch.Floor, ch.Held, now.UnixMicro(), now.Add(ttl).UnixMicro(),
		ch.ID, h.Node, h.Incarnation, ch.Token, ch.Version)
	return n > 0, err
}

// state reads the signer's row into snap.
func (c *session) state(ctx context.Context, snap *nonce.Snapshot) (err error) {
	var l leaseRow
	dest := append([]any{&snap.ID, &snap.Next, &snap.Floor, &snap.Version, &snap.Held, &snap.Pruned}, l.dest()...)
	if snap.Exists, err = c.one(ctx, dest, sqlState, snap.Signer); snap.Exists {
		snap.Lease = l.grant()
	}
	return err
}

// leaseRow receives leaseColumns.
type leaseRow struct {
	node, url                     string
	incarnation, token, expiresAt int64
}

func (l *leaseRow) dest() []any {
	return []any{&l.node, &l.incarnation, &l.url, &l.token, &l.expiresAt}
}

func (l *leaseRow) grant() lease.Grant {
	return lease.Grant{
		Holder: lease.Holder{Node: l.node, Incarnation: l.incarnation}, URL: l.url, Token: l.token, ExpiresAt: timeOf(l.expiresAt),
	}
}

// timeOf is the time of a column, where 0 is none.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
