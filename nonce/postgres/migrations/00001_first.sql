-- +goose Up
-- The marker: a binary that knows schema_level L refuses a database whose
-- breaking_level is above L; all other newer migrations only added something.
CREATE TABLE noncegate_schema (
    breaking_level integer NOT NULL
);
INSERT INTO noncegate_schema VALUES (1);

CREATE TABLE gateway_node (
    node_id     text PRIMARY KEY,
    url         text NOT NULL,
    incarnation bigint NOT NULL,
    counter     bigint NOT NULL,
    live        boolean NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL
) WITH (fillfactor = 50);

-- One row a signer; its fence. No index on expires_at: it would end in-place
-- (HOT) updates, and nothing looks for expired leases.
CREATE TABLE signer_nonce_state (
    signer_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    signer            text NOT NULL UNIQUE,
    next_nonce        bigint NOT NULL DEFAULT 0,
    floor             bigint NOT NULL DEFAULT 0,
    held              bigint NOT NULL DEFAULT 0,
    version           bigint NOT NULL DEFAULT 0,
    owner_node        text,
    owner_incarnation bigint,
    fencing_token     bigint NOT NULL DEFAULT 0,
    acquired_at       timestamptz,
    expires_at        timestamptz,
    updated_at        timestamptz NOT NULL
) WITH (fillfactor = 50);

-- status: 1 HELD, 2 RELEASED, 3 CONSUMED.
CREATE TABLE signer_nonce_allocation (
    signer_id     bigint NOT NULL,
    nonce         bigint NOT NULL,
    status        smallint NOT NULL CHECK (status BETWEEN 1 AND 3),
    attempt       bigint NOT NULL,
    fencing_token bigint NOT NULL,
    held_until    timestamptz,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    tx_hash       bytea,
    reason        text,
    PRIMARY KEY (signer_id, nonce)
) WITH (fillfactor = 90);

-- Lowest RELEASED first.
CREATE INDEX signer_nonce_allocation_released ON signer_nonce_allocation (signer_id, nonce) WHERE status = 2;
-- Overdue holds of any signer. Each index here is paid for by every hand-out; the
-- open holds of one signer are found by its primary key, from the top down, as
-- many as signer_nonce_state.held says. Without deduplication, because all holds
-- of one commit have one deadline and most entries are deleted soon.
CREATE INDEX signer_nonce_allocation_due ON signer_nonce_allocation (held_until) WITH (deduplicate_items = off) WHERE status = 1;

CREATE TABLE signer_nonce_request (
    signer_id    bigint NOT NULL,
    request_id   text NOT NULL,
    request_hash bytea NOT NULL,
    nonces       bigint[] NOT NULL,
    attempts     bigint[] NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (signer_id, request_id)
);
-- Rows arrive in order of created_at, so a block range index finds the old ones. A
-- range that is not summarized is read each time, hence autosummarize.
CREATE INDEX signer_nonce_request_created ON signer_nonce_request USING brin (created_at) WITH (pages_per_range = 64, autosummarize = on);

-- The lease columns under their usual names.
CREATE VIEW signer_lease AS
SELECT signer, owner_node AS owner, owner_incarnation AS incarnation, fencing_token AS token, acquired_at, expires_at
FROM signer_nonce_state;

-- The allocations with the name of their signer, for people.
CREATE VIEW signer_allocation AS
SELECT s.signer, a.nonce,
       (ARRAY['HELD', 'RELEASED', 'CONSUMED'])[a.status] AS status,
       a.attempt, '0x' || encode(a.tx_hash, 'hex') AS tx_hash, a.reason, a.held_until, a.fencing_token, a.created_at, a.updated_at
FROM signer_nonce_allocation a JOIN signer_nonce_state s USING (signer_id);
