package postgres

import "strconv"

// The pieces of a commit that is runs only; see commitText.

// A run is so many numbers in $5: key, token, version, first nonce, how many and for
// how long; its holder, where there are any; where its request ids begin and end,
// where there are any.
const runNumbers = 6

func runWidth(p parts) string {
	return strconv.Itoa(runNumbers + pick(p, partHolder, 1) + pick(p, partRequest, 2))
}

// runRequests are the places of the last two.
func runRequests(p parts) (lo, hi string) {
	at := runNumbers + pick(p, partHolder, 1)
	return "($5::bigint[])[o+" + strconv.Itoa(at+1) + "]", "($5::bigint[])[o+" + strconv.Itoa(at+2) + "]"
}

func pick(p, part parts, n int) int {
	if p&part != 0 {
		return n
	}
	return 0
}

// runSkipText is skipText for runs; a run is known by where it begins in $5.
func runSkipText(p parts) string {
	return `
, l AS MATERIALIZED (
  SELECT o FROM generate_series(0, cardinality($5::bigint[]) - 1, ` + runWidth(p) + `) o, LATERAL (
    SELECT 1 FROM signer_nonce_state s WHERE o + 0 = o AND s.signer_id = ($5::bigint[])[o+1] FOR NO KEY UPDATE SKIP LOCKED) free)`
}

// runText is signerText for runs.
func runText(p parts) string {
	lo, hi := runRequests(p)
	return `
, u AS (
  UPDATE signer_nonce_state s
  SET version = s.version + 1, updated_at = c.now, next_nonce = ($5::bigint[])[o+4] + ($5::bigint[])[o+5], held = s.held + ($5::bigint[])[o+5]` +
		choose(p&partLocked == 0, `, expires_at = c.expires`, "") + `
  FROM c, ` + choose(p&partSkip != 0, "l", "generate_series(0, cardinality($5::bigint[]) - 1, "+runWidth(p)+") o") + `
  WHERE o + 0 = o AND s.signer_id = ($5::bigint[])[o+1] AND s.version = ($5::bigint[])[o+3]` + reliableText +
		choose(p&partLocked == 0, ` AND s.fencing_token = ($5::bigint[])[o+2] AND s.owner_node = c.owner AND s.owner_incarnation = c.incarnation`, "") +
		choose(p&partKnown != 0, newText("($5::bigint[])[o+1]", lo, hi), "") + `
  RETURNING s.signer_id, (o / ` + runWidth(p) + `)::bigint AS ord, ($5::bigint[])[o+2] AS token, c.now, ($5::bigint[])[o+4] AS first, ($5::bigint[])[o+5] AS count,
            c.now + ($5::bigint[])[o+6] * interval '1 microsecond' AS held_until` +
		choose(p&partHolder != 0, `, nullif(($5::bigint[])[o+7], 0) AS holder`, "") +
		choose(p&partRequest != 0, `, `+lo+` AS req_lo, `+hi+` AS req_hi`, "") + `)`
}

// runInsertText inserts the nonces of runs.
func runInsertText(p parts) string {
	holder := choose(p&partHolder != 0, ", holder", "")
	column := choose(p&partHolder != 0, ", u.holder", "")
	return `
, i AS (
  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at` + holder + `)
  SELECT u.signer_id, ` + choose(p&partOne != 0, "u.first", "n") + `, 1, 1, u.token, u.held_until, u.now, u.now` + column + `
  FROM u` + choose(p&partOne != 0, "", ", generate_series(u.first, u.first + u.count - 1) n") + `)`
}
