-- +goose Up
-- What nodes say of themselves; patience is in microseconds.
ALTER TABLE gateway_node ADD COLUMN mode     TEXT    NOT NULL DEFAULT '';
ALTER TABLE gateway_node ADD COLUMN patience INTEGER NOT NULL DEFAULT 15000000;
ALTER TABLE gateway_node ADD COLUMN signers  INTEGER NOT NULL DEFAULT 0;
