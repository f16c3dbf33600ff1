-- +goose Up
-- What nodes say of themselves. The defaults are those of a node whose version
-- does not say: nobody prefers a node of unknown mode.
ALTER TABLE gateway_node
    ADD COLUMN mode     text     NOT NULL DEFAULT '',
    ADD COLUMN patience interval NOT NULL DEFAULT '15 seconds',
    ADD COLUMN signers  bigint   NOT NULL DEFAULT 0;
