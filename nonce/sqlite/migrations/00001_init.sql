-- Times are milliseconds since 1970 UTC, unless it says otherwise. From the first release on migrations only add.

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
    fencing_token     INTEGER NOT NULL DEFAULT 0,
    pinned_node       TEXT   NOT NULL DEFAULT '' -- where it should be while that node lives; '': the balance says
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

-- Signers of chains with nonces that are open, or not final yet, each once. kind: nonce.WatchKind.
CREATE TABLE signer_watch (
    signer_id INTEGER PRIMARY KEY,
    shard_id  INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    nonce     INTEGER NOT NULL,
    since     INTEGER NOT NULL
) STRICT;

-- Transactions that gateways give to nodes of chains, until a block has used their nonces.
-- state: nonce/sent.go. raw: of an open one, else empty.
CREATE TABLE signer_sent (
    signer   TEXT    NOT NULL,
    nonce    INTEGER NOT NULL,
    tx_hash  BLOB    NOT NULL,
    shard_id INTEGER NOT NULL,
    payment  BLOB    NOT NULL, -- the same for transactions that pay the same to the same
    raw      BLOB    NOT NULL,
    state    INTEGER NOT NULL,
    look_at  INTEGER NOT NULL,
    PRIMARY KEY (signer, nonce, tx_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX signer_sent_look ON signer_sent (look_at);

-- The lease: one a node. A row stays when its node leaves: it carries the incarnation.
CREATE TABLE gateway_node (
    node        TEXT    PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    counter     INTEGER NOT NULL, -- heartbeats of the incarnation
    lease_until INTEGER NOT NULL, -- 0: it has none yet
    url         TEXT    NOT NULL,
    mode        TEXT    NOT NULL,
    gone        INTEGER NOT NULL, -- 1: it has left
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL
) STRICT;

-- What principals are called, for people. principal is the signed number of eight bytes, as
-- in signer_history.holder.
CREATE TABLE gateway_principal (
    principal INTEGER PRIMARY KEY,
    name      TEXT    NOT NULL
) STRICT;

-- API keys. The secret is not here, only the SHA-256 of the key. Times are in
-- microseconds since 1970, as are those of tickets.
CREATE TABLE auth_key (
    id         TEXT    PRIMARY KEY,
    principal  TEXT    NOT NULL,
    hash       BLOB    NOT NULL CHECK (length(hash) = 32),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX auth_key_principal ON auth_key (principal);

-- One row, with a number that is another one after each change of a key.
CREATE TABLE auth_key_generation (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL
) STRICT;

INSERT INTO auth_key_generation (one, number) VALUES (1, 1);

-- Tickets that were issued and not redeemed yet: the SHA-256 of each, who it is for, and by
-- which credential, which ends at ends_at.
CREATE TABLE auth_ticket (
    hash       BLOB    PRIMARY KEY CHECK (length(hash) = 32),
    principal  TEXT    NOT NULL,
    credential TEXT    NOT NULL,
    ends_at    INTEGER,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX auth_ticket_principal ON auth_ticket (principal, expires_at);

CREATE INDEX auth_ticket_expires ON auth_ticket (expires_at);
