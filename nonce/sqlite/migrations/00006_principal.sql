-- +goose Up
-- What principals are called, for people. principal is the signed number of the eight
-- bytes, as in signer_nonce_allocation.holder.
CREATE TABLE gateway_principal (
    principal INTEGER PRIMARY KEY,
    name      TEXT NOT NULL
) STRICT;

-- What stands out: holds of which nobody knows whether they were used, and nonces that
-- were handed out for the third time or later. An ordinary hold has no entry.
CREATE INDEX signer_nonce_allocation_notable ON signer_nonce_allocation (signer_id, nonce)
    WHERE status <> 3 AND (attempt >= 3 OR reason = 'unknown');

-- tx_hash may have more than one hash, 32 bytes each: the newest, then those that it
-- replaced, oldest first. Older programs read the newest.
DROP VIEW signer_allocation;
CREATE VIEW signer_allocation AS
SELECT s.signer, a.nonce,
    CASE a.status WHEN 1 THEN 'HELD' WHEN 2 THEN 'RELEASED' WHEN 3 THEN 'CONSUMED' END AS status,
    a.attempt, CASE WHEN a.tx_hash IS NOT NULL THEN '0x' || lower(hex(substr(a.tx_hash, 1, 32))) END AS tx_hash, a.reason,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.held_until / 1e6, 'unixepoch') AS held_until,
    a.fencing_token, a.request_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.updated_at / 1e6, 'unixepoch') AS updated_at,
    (WITH RECURSIVE h(k) AS (SELECT 1 WHERE length(a.tx_hash) > 32 UNION ALL SELECT k + 1 FROM h WHERE length(a.tx_hash) > 32 * (k + 1))
        SELECT group_concat('0x' || lower(hex(substr(a.tx_hash, 32 * k + 1, 32))), ' ') FROM h) AS replaced,
    coalesce(p.name, CASE WHEN a.holder IS NOT NULL THEN printf('%016x', a.holder) END) AS holder
FROM signer_nonce_allocation a JOIN signer_nonce_state s USING (signer_id) LEFT JOIN gateway_principal p ON p.principal = a.holder;
