//go:build unix

package main

import (
	"errors"
	"os"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce/postgres"
)

// The gateways of a run have the heart that the variable says, the new one if it says
// none. A test of what only one of them has chooses it, with onOldHeart or onNewHeart. What
// tests need of the tables is in this file, for each heart.

// heartVariable sets the heart of gateways, and of the tests that start them.
const heartVariable = "NONCEGATE_HEART"

// chooseHeart is called before any test runs. Gateways, and the commands that tests run
// beside them, inherit the variable.
func chooseHeart() error {
	if os.Getenv(heartVariable) != "" {
		return nil
	}
	return os.Setenv(heartVariable, "new")
}

var chosenHearts sync.Map // by the name of the test: whether it is the new one

// onOldHeart makes the gateways of the test, and of its subtests, have the old heart: it is
// about something that only they have. It is called before the first of them is started.
func onOldHeart(t testing.TB) { chosenHearts.Store(t.Name(), false) }

// onNewHeart is onOldHeart for the new heart.
func onNewHeart(t testing.TB) { chosenHearts.Store(t.Name(), true) }

// newHeart reports whether the gateways of the test have the new heart.
func newHeart(t testing.TB) bool {
	for name := t.Name(); name != "."; name = path.Dir(name) {
		if chosen, ok := chosenHearts.Load(name); ok {
			return chosen.(bool)
		}
	}
	return os.Getenv(heartVariable) == "new"
}

// either is what is expected of the new heart, or of the old one.
func either[T any](t testing.TB, ofNew, ofOld T) T {
	if newHeart(t) {
		return ofNew
	}
	return ofOld
}

// fewShards is how many shards the databases of most tests have. They are where they should
// be sooner than the 32 that a database gets else.
const fewShards = 8

// migrateFor brings a database to the schema of the test's gateways.
func migrateFor(t testing.TB, url string) {
	t.Helper()
	var err error
	if newHeart(t) {
		var s *postgres.ShardStore
		if s, err = postgres.OpenShards(t.Context(), url, fewShards, postgres.Config{}); err == nil {
			err = s.Close()
		}
	} else {
		var s *postgres.Store
		if s, err = postgres.Open(t.Context(), url, postgres.Config{}); err == nil {
			_, err = s.Migrate(t.Context())
			err = errors.Join(err, s.Close())
		}
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
const (
	oldTables = `WITH signers AS (
	SELECT signer_id, signer, version, next_nonce AS next, floor, owner_node AS owner, fencing_token AS token FROM signer_nonce_state
), nonces AS (
	SELECT signer_id, nonce, (ARRAY['HELD', 'RELEASED', 'CONSUMED'])[status] AS status, attempt, fencing_token AS token FROM signer_nonce_allocation
), given AS (
	SELECT q.signer_id, q.request_id, n.nonce, n.attempt FROM signer_nonce_request q, unnest(q.nonces, q.attempts) n(nonce, attempt)
), nodes AS (
	SELECT node_id AS node, live, incarnation FROM gateway_node
) `
	newTables = `WITH signers AS (
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
)

// query is the result of a query of signers, nonces and given as text, a line each row.
func query(t testing.TB, url, sql string) string {
	t.Helper()
	return rowsWith(t, url, either(t, newTables, oldTables), sql)
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
		for shard, heir := range lease.Assign(nodes, pinned) {
			if owners[shard] != nodes[heir] {
				return false
			}
		}
		return true
	})
}

// everything is all there is of the signers, the times of the store included.
func everything(t testing.TB, url string) string {
	t.Helper()
	if newHeart(t) {
		return rows(t, url, `SELECT * FROM signer ORDER BY signer_id`) + "\n" +
			rows(t, url, `SELECT * FROM signer_history ORDER BY signer_id, nonce`) + "\n" +
			rows(t, url, `SELECT * FROM signer_request ORDER BY signer_id, request_id`)
	}
	return rows(t, url, `SELECT * FROM signer_nonce_state ORDER BY signer_id`) + "\n" +
		rows(t, url, `SELECT * FROM signer_nonce_allocation ORDER BY signer_id, nonce`) + "\n" +
		rows(t, url, `SELECT * FROM signer_nonce_request ORDER BY signer_id, request_id`)
}

// consistent fails the test unless each signer's rows are as they say of each other: no
// hole, nothing beyond, and no nonce that two requests were given.
func consistent(t testing.TB, url string) {
	t.Helper()
	if newHeart(t) {
		consistentShards(t, url, true)
		return
	}
	wrong := rows(t, url, `
		SELECT s.signer, s.next_nonce, s.held, count(a), count(a) FILTER (WHERE a.status = 1) AS holds, max(a.nonce)
		FROM signer_nonce_state s LEFT JOIN signer_nonce_allocation a USING (signer_id)
		GROUP BY s.signer_id
		HAVING s.next_nonce - greatest(s.floor, s.pruned) <> count(a) FILTER (WHERE a.nonce >= greatest(s.floor, s.pruned))
		    OR s.held <> count(a) FILTER (WHERE a.status = 1) OR max(a.nonce) >= s.next_nonce OR min(a.nonce) < s.pruned`)
	if wrong != "" {
		t.Errorf("signer, next, held, rows, holds, highest:\n%s", wrong)
	}
}

// consistentButPruned is consistent where old rows of what is consumed were deleted.
func consistentButPruned(t testing.TB, url string) {
	t.Helper()
	if newHeart(t) {
		consistentShards(t, url, false)
		return
	}
	consistent(t, url)
}

// consistentShards is consistent for the new heart. Where rows of the history may have been
// deleted, it is not kept whole.
func consistentShards(t testing.TB, url string, whole bool) {
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
