-- +goose Up
-- Who took the last hold of a nonce: eight bytes that stand for a principal. NULL:
-- nobody in particular, and then it takes no room.
ALTER TABLE signer_nonce_allocation ADD COLUMN holder bigint;
