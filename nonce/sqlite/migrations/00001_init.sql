-- Times are microseconds since 1970 UTC. Migrations only add. One that older
-- programs cannot live with inserts its number into schema_breaking. There is no
-- way down.

-- +goose Up
CREATE TABLE schema_breaking (
    version INTEGER PRIMARY KEY,
    reason  TEXT NOT NULL -- a clause for the sentence that older programs end with
) STRICT;

-- The fence: every write of an allocation first changes its signer's row. A row
-- is never deleted; that would restart its token.
CREATE TABLE signer_nonce_state (
    signer_id         INTEGER PRIMARY KEY,
    signer            TEXT    NOT NULL UNIQUE,
    next_nonce        INTEGER NOT NULL DEFAULT 0,
    floor             INTEGER NOT NULL DEFAULT 0,
    version           INTEGER NOT NULL DEFAULT 0,
    held              INTEGER NOT NULL DEFAULT 0, -- allocations with status 1
    owner_node        TEXT,                       -- NULL: nobody
    owner_incarnation INTEGER NOT NULL DEFAULT 0,
    fencing_token     INTEGER NOT NULL DEFAULT 0,
    acquired_at       INTEGER,
    expires_at        INTEGER,
    updated_at        INTEGER NOT NULL
) STRICT;

-- status: 1 HELD, 2 RELEASED, 3 CONSUMED. One structure on disk, in order of
-- signer and nonce: a hand-out touches its signer's last page and no other.
CREATE TABLE signer_nonce_allocation (
    signer_id     INTEGER NOT NULL,
    nonce         INTEGER NOT NULL,
    status        INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    tx_hash       BLOB,
    reason        TEXT,
    held_until    INTEGER, -- only with status 1
    fencing_token INTEGER NOT NULL,
    request_id    TEXT,    -- of this attempt
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (signer_id, nonce)
) STRICT, WITHOUT ROWID;

-- Holds by deadline, of all signers: new ones go to its end. An index by signer
-- as well cost a third of the hand-outs per second.
CREATE INDEX signer_nonce_allocation_held ON signer_nonce_allocation (held_until) WHERE status = 1;
CREATE INDEX signer_nonce_allocation_released ON signer_nonce_allocation (signer_id, nonce) WHERE status = 2;

CREATE TABLE signer_nonce_request (
    signer_id    INTEGER NOT NULL,
    request_id   TEXT    NOT NULL,
    request_hash BLOB    NOT NULL,
    nonces       TEXT    NOT NULL, -- [[nonce, attempt], ...]
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (signer_id, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX signer_nonce_request_created ON signer_nonce_request (created_at);

CREATE TABLE gateway_node (
    node          TEXT    PRIMARY KEY,
    url           TEXT    NOT NULL,
    incarnation   INTEGER NOT NULL,
    counter       INTEGER NOT NULL, -- beats of this incarnation
    live          INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    beat_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people who read by SQL.
CREATE VIEW signer_lease AS
SELECT signer, owner_node, owner_incarnation, fencing_token,
    strftime('%Y-%m-%dT%H:%M:%fZ', acquired_at / 1e6, 'unixepoch') AS acquired_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1e6, 'unixepoch') AS expires_at
FROM signer_nonce_state;

CREATE VIEW signer_allocation AS
SELECT s.signer, a.nonce,
    CASE a.status WHEN 1 THEN 'HELD' WHEN 2 THEN 'RELEASED' WHEN 3 THEN 'CONSUMED' END AS status,
    a.attempt, CASE WHEN a.tx_hash IS NOT NULL THEN '0x' || lower(hex(a.tx_hash)) END AS tx_hash, a.reason,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.held_until / 1e6, 'unixepoch') AS held_until,
    a.fencing_token, a.request_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.updated_at / 1e6, 'unixepoch') AS updated_at
FROM signer_nonce_allocation a JOIN signer_nonce_state s USING (signer_id);
