-- +goose NO TRANSACTION
-- +goose Up
-- The indexes are built while nodes write. One that was interrupted is left invalid, so
-- it goes first.

-- What stands out: holds of which nobody knows whether they were used, and nonces that
-- were handed out for the third time or later. An ordinary hold has no entry.
DROP INDEX IF EXISTS signer_nonce_allocation_notable;
CREATE INDEX CONCURRENTLY signer_nonce_allocation_notable ON signer_nonce_allocation (signer_id, nonce)
    WHERE status <> 3 AND (attempt >= 3 OR reason = 'unknown');
-- Signers in order of their name, byte by byte, whatever the database's collation is.
DROP INDEX IF EXISTS signer_nonce_state_name;
CREATE INDEX CONCURRENTLY signer_nonce_state_name ON signer_nonce_state (signer COLLATE "C");
