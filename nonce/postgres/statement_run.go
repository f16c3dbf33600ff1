package postgres

// The pieces of a commit that is runs only; see commitText.

// runWidth is how many numbers a run has in $5.
func runWidth(p parts) string { return choose(p&partRequest != 0, "8", "6") }

// runSkipText is skipText for runs; a run is known by where it begins in $5.
func runSkipText(p parts) string {
	return `
, l AS MATERIALIZED (
  SELECT o FROM generate_series(0, cardinality($5::bigint[]) - 1, ` + runWidth(p) + `) o, LATERAL (
    SELECT 1 FROM signer_nonce_state s WHERE o + 0 = o AND s.signer_id = ($5::bigint[])[o+1] FOR NO KEY UPDATE SKIP LOCKED) free)`
}

// runText is signerText for runs.
func runText(p parts) string {
	return `
, u AS (
  UPDATE signer_nonce_state s
  SET version = s.version + 1, updated_at = c.now, next_nonce = ($5::bigint[])[o+4] + ($5::bigint[])[o+5], held = s.held + ($5::bigint[])[o+5]` +
		choose(p&partLocked == 0, `, expires_at = c.expires`, "") + `
  FROM c, ` + choose(p&partSkip != 0, "l", "generate_series(0, cardinality($5::bigint[]) - 1, "+runWidth(p)+") o") + `
  WHERE o + 0 = o AND s.signer_id = ($5::bigint[])[o+1] AND s.version = ($5::bigint[])[o+3]` + reliableText +
		choose(p&partLocked == 0, ` AND s.fencing_token = ($5::bigint[])[o+2] AND s.owner_node = c.owner AND s.owner_incarnation = c.incarnation`, "") +
		choose(p&partKnown != 0, newText("($5::bigint[])[o+1]", "($5::bigint[])[o+7]", "($5::bigint[])[o+8]"), "") + `
  RETURNING s.signer_id, (o / ` + runWidth(p) + `)::bigint AS ord, ($5::bigint[])[o+2] AS token, c.now, ($5::bigint[])[o+4] AS first, ($5::bigint[])[o+5] AS count,
            c.now + ($5::bigint[])[o+6] * interval '1 microsecond' AS held_until` +
		choose(p&partRequest != 0, `, ($5::bigint[])[o+7] AS req_lo, ($5::bigint[])[o+8] AS req_hi`, "") + `)`
}

const runInsertText = `
, i AS (
  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at)
  SELECT u.signer_id, n, 1, 1, u.token, u.held_until, u.now, u.now
  FROM u, generate_series(u.first, u.first + u.count - 1) n)`

const oneInsertText = `
, i AS (
  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at)
  SELECT u.signer_id, u.first, 1, 1, u.token, u.held_until, u.now, u.now
  FROM u)`
