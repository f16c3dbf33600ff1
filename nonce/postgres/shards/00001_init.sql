-- From the first release on migrations only add. Times are milliseconds since 1970 UTC by
-- store_millis(), which is the only clock of the store.

-- +goose Up
CREATE FUNCTION store_millis() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The fence: a commit locks the rows of the shards that it writes signers of, and compares
-- them. Rows are never deleted; that would restart their tokens.
CREATE TABLE shard (
    shard_id          int    PRIMARY KEY,
    owner_node        text   NOT NULL DEFAULT '', -- '': nobody
    owner_incarnation bigint NOT NULL DEFAULT 0,
    fencing_token     bigint NOT NULL DEFAULT 0
);

-- All that lives of a signer. live has the nonces below next_nonce that are HELD or
-- RELEASED, as nonce/live_codec.go writes them. Nothing that changes is indexed, and there
-- is room in each page, so that a row is changed where it is.
CREATE TABLE signer (
    signer_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    signer        text   NOT NULL UNIQUE COLLATE "C",
    shard_id      int    NOT NULL,
    version       bigint NOT NULL,
    fencing_token bigint NOT NULL, -- under which it was written last; 0: mode basic
    next_nonce    bigint NOT NULL,
    floor         bigint NOT NULL,
    live          bytea  NOT NULL,
    updated_at    bigint NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE signer ALTER COLUMN live SET STORAGE EXTERNAL;

-- What was CONSUMED: information, and no state. A nonce below next_nonce that is not in
-- live is CONSUMED whether its row is kept or not. tx_hashes: 32 bytes each, the newest,
-- then those that it replaced, oldest first.
CREATE TABLE signer_history (
    signer_id bigint NOT NULL,
    nonce     bigint NOT NULL,
    attempt   bigint NOT NULL,
    holder    bigint NOT NULL,
    tx_hashes bytea  NOT NULL,
    reason    text   NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (signer_id, nonce)
);
CREATE INDEX signer_history_at ON signer_history USING brin (at);

CREATE TABLE signer_request (
    signer_id    bigint NOT NULL,
    request_id   text   NOT NULL COLLATE "C",
    request_hash bytea  NOT NULL,
    nonces       text   NOT NULL, -- [[nonce, attempt], ...]
    created_at   bigint NOT NULL,
    PRIMARY KEY (signer_id, request_id)
);
CREATE INDEX signer_request_created ON signer_request USING brin (created_at);

-- Signers that may have a hold to be ended, each once.
CREATE TABLE signer_due (
    signer_id bigint PRIMARY KEY,
    shard_id  int    NOT NULL,
    due_at    bigint NOT NULL
);
CREATE INDEX signer_due_at ON signer_due (shard_id, due_at, signer_id);

-- A row stays when its node leaves: it carries the incarnation.
CREATE TABLE gateway_node (
    node        text   PRIMARY KEY COLLATE "C",
    incarnation bigint NOT NULL,
    counter     bigint NOT NULL DEFAULT 0,
    lease_until bigint NOT NULL DEFAULT 0,
    url         text   NOT NULL DEFAULT '',
    mode        text   NOT NULL DEFAULT ''
);

-- broken refuses a statement as a whole: something is not as the rules leave it. The code is
-- one that no statement means by itself.
-- +goose StatementBegin
CREATE FUNCTION broken(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', what USING ERRCODE = 'division_by_zero';
END $$;
-- +goose StatementEnd
