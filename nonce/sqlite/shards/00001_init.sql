-- Times are milliseconds since 1970 UTC. From the first release on migrations only add.

-- +goose Up
CREATE TABLE schema_breaking (
    version INTEGER PRIMARY KEY,
    reason  TEXT NOT NULL -- a clause for the sentence that older programs end with
) STRICT;

-- The fence: a commit compares the row of each shard that it writes signers of. Rows are
-- never deleted; that would restart their tokens.
CREATE TABLE shard (
    shard_id          INTEGER PRIMARY KEY,
    owner_node        TEXT    NOT NULL DEFAULT '', -- '': nobody
    owner_incarnation INTEGER NOT NULL DEFAULT 0,
    fencing_token     INTEGER NOT NULL DEFAULT 0
) STRICT;

-- All that lives of a signer. live has the nonces below next_nonce that are HELD or
-- RELEASED, as nonce/live_codec.go writes them. Nothing that changes is indexed.
CREATE TABLE signer (
    signer_id     INTEGER PRIMARY KEY,
    signer        TEXT    NOT NULL UNIQUE,
    shard_id      INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL, -- under which it was written last; 0: mode basic
    next_nonce    INTEGER NOT NULL,
    floor         INTEGER NOT NULL,
    live          BLOB    NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;

-- What was CONSUMED: information, and no state. A nonce below next_nonce that is not in
-- live is CONSUMED whether its row is kept or not. tx_hashes: 32 bytes each, the newest,
-- then those that it replaced, oldest first.
CREATE TABLE signer_history (
    signer_id INTEGER NOT NULL,
    nonce     INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    holder    INTEGER NOT NULL,
    tx_hashes BLOB    NOT NULL,
    reason    TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (signer_id, nonce)
) STRICT, WITHOUT ROWID;

CREATE INDEX signer_history_at ON signer_history (at);

CREATE TABLE signer_request (
    signer_id    INTEGER NOT NULL,
    request_id   TEXT    NOT NULL,
    request_hash BLOB    NOT NULL,
    nonces       TEXT    NOT NULL, -- [[nonce, attempt], ...]
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (signer_id, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX signer_request_created ON signer_request (created_at);

-- Signers that may have a hold to be ended, each once.
CREATE TABLE signer_due (
    signer_id INTEGER PRIMARY KEY,
    shard_id  INTEGER NOT NULL,
    due_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX signer_due_at ON signer_due (due_at, signer_id);

-- A row stays when its node leaves: it carries the incarnation.
CREATE TABLE gateway_node (
    node        TEXT    PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    counter     INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER NOT NULL DEFAULT 0,
    url         TEXT    NOT NULL DEFAULT '',
    mode        TEXT    NOT NULL DEFAULT ''
) STRICT;
