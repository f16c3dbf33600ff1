-- +goose Up
-- Nonces below pruned have no row in signer_nonce_allocation any more and count
-- as CONSUMED. A constant default does not rewrite the table, however many
-- signers there are.
ALTER TABLE signer_nonce_state ADD COLUMN pruned bigint NOT NULL DEFAULT 0;
