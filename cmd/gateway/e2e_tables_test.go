//go:build unix

package main

import (
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce/postgres"
)

// fewShards is how many shards the databases of most tests have. They are where they should
// be sooner than the 32 that a database gets else.
const fewShards = 8

// migrateFor brings a database to the schema of the test's gateways.
func migrateFor(t testing.TB, url string) {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, fewShards, postgres.Config{})
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The tables of a database under names of the tests: signers(signer_id, signer, version,
// next, floor, owner, token), nonces(signer_id, nonce, status, attempt, token) and
// given(signer_id, request_id, nonce, attempt), which has a row for each nonce of an
// allocation with a request id, and nodes(node, live, incarnation). token is that under which the row was written, 0 by a
// node in mode basic.
const tables = `WITH signers AS (
	SELECT signer_id, signer, version, next_nonce AS next, floor, nullif(owner_node, '') AS owner, s.fencing_token AS token FROM signer s JOIN shard USING (shard_id)
), nonces AS (
	SELECT signer_id, e.nonce, e.status, e.attempt, s.fencing_token AS token FROM signer s, live_entries(s.live) e
	UNION ALL SELECT h.signer_id, h.nonce, 'CONSUMED', h.attempt, s.fencing_token FROM signer_history h JOIN signer s USING (signer_id)
	WHERE NOT EXISTS (SELECT 1 FROM live_entries(s.live) e WHERE e.nonce = h.nonce)
), given AS (
	SELECT q.signer_id, q.request_id, (n->>0)::bigint AS nonce, (n->>1)::bigint AS attempt FROM signer_request q, jsonb_array_elements(q.nonces::jsonb) n
), nodes AS (
	SELECT node, NOT gone AND lease_until > store_millis() AS live, incarnation FROM gateway_node
) `

// query is the result of a query of signers, nonces and given as text, a line each row.
func query(t testing.TB, url, sql string) string {
	t.Helper()
	return rowsWith(t, url, tables, sql)
}

// settled waits until each shard is at the node that should have it, of those given.
func settled(t testing.TB, url string, nodes ...string) {
	t.Helper()
	slices.Sort(nodes)
	conn := dial(t, url)
	defer conn.Close(t.Context())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var owners, pinned []string
	await(t, "each shard to be at its node", func() bool {
		<-tick.C
		err := conn.QueryRow(t.Context(), `SELECT array_agg(owner_node ORDER BY shard_id), array_agg(pinned_node ORDER BY shard_id) FROM shard`).Scan(&owners, &pinned)
		if err != nil {
			t.Fatal(err)
		}
		for shard, preferred := range lease.Assign(nodes, pinned) {
			if owners[shard] != nodes[preferred] {
				return false
			}
		}
		return true
	})
}

// everything is all there is of the signers, the times of the store included.
func everything(t testing.TB, url string) string {
	t.Helper()
	return rows(t, url, `SELECT * FROM signer ORDER BY signer_id`) + "\n" +
		rows(t, url, `SELECT * FROM signer_history ORDER BY signer_id, nonce`) + "\n" +
		rows(t, url, `SELECT * FROM signer_request ORDER BY signer_id, request_id`)
}

// consistent fails the test unless each signer's rows are as they say of each other: no
// hole, nothing beyond, and no nonce that two requests were given.
func consistent(t testing.TB, url string) {
	t.Helper()
	consistentRows(t, url, true)
}

// consistentButPruned is consistent where old rows of what is consumed were deleted.
func consistentButPruned(t testing.TB, url string) {
	t.Helper()
	consistentRows(t, url, false)
}

// consistentRows is consistent. Where rows of the history may have been
// deleted, it is not kept whole.
func consistentRows(t testing.TB, url string, whole bool) {
	t.Helper()
	for what, sql := range map[string]string{
		"signer, next, nonces with rows, highest": `
			SELECT s.signer, s.next, count(n), max(n.nonce) FROM signers s LEFT JOIN nonces n USING (signer_id)
			GROUP BY s.signer_id, s.signer, s.next, s.floor
			HAVING max(n.nonce) >= s.next OR count(n) > count(DISTINCT n.nonce) OR bool_or(n.status = 'UNREADABLE')
			    OR ` + map[bool]string{true: "true", false: "false"}[whole] + ` AND s.next > s.floor AND count(n) FILTER (WHERE n.nonce >= s.floor) <> s.next - s.floor`,
		// A consumed nonce that is repaired lives again, at a higher attempt.
		"nonces that are used and live": `
			SELECT s.signer, h.nonce FROM signer s JOIN signer_history h USING (signer_id), live_entries(s.live) e WHERE e.nonce = h.nonce AND e.attempt <= h.attempt`,
		"nonces that two requests were given": `
			SELECT signer_id, nonce, attempt, array_agg(request_id) FROM given GROUP BY 1, 2, 3 HAVING count(*) > 1`,
		"nonces of requests that were never handed out": `
			SELECT s.signer, g.* FROM given g JOIN signers s USING (signer_id) WHERE g.nonce >= s.next`,
		"holds that nobody would end": `
			SELECT s.signer, min(e.held_until), d.due_at FROM signer s CROSS JOIN LATERAL live_entries(s.live) e LEFT JOIN signer_due d USING (signer_id)
			WHERE e.status = 'HELD' GROUP BY s.signer_id, d.due_at HAVING d.due_at IS NULL OR d.due_at > min(e.held_until)`,
		"signers in the wrong shard": `
			SELECT s.signer, s.shard_id, d.shard_id FROM signer s LEFT JOIN signer_due d USING (signer_id) WHERE d.shard_id <> s.shard_id OR s.shard_id NOT IN (SELECT shard_id FROM shard)`,
	} {
		if wrong := query(t, url, sql); wrong != "" {
			t.Errorf("%s:\n%s", what, wrong)
		}
	}
}
