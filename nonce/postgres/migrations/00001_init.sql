-- From the first release on migrations only add. Times are milliseconds since 1970 UTC by
-- store_millis(), which is the only clock of signers, shards and nodes.

-- +goose Up
-- A migration that breaks older programs raises the level, and those refuse the database.
CREATE TABLE noncegate_schema (
    breaking_level int NOT NULL
);
INSERT INTO noncegate_schema VALUES (1);

CREATE FUNCTION store_millis() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The fence: a commit locks the rows of the shards that it writes signers of, and compares
-- them. Rows are never deleted; that would restart their tokens.
CREATE TABLE shard (
    shard_id          int    PRIMARY KEY,
    owner_node        text   NOT NULL DEFAULT '', -- '': nobody
    owner_incarnation bigint NOT NULL DEFAULT 0,
    fencing_token     bigint NOT NULL DEFAULT 0,
    pinned_node       text   NOT NULL DEFAULT '', -- where it should be while that node lives; '': the balance says
    -- The log in front of the rows, with the performance engine (nonce/log.go).
    performance  boolean NOT NULL DEFAULT false,
    log_identity text    NOT NULL DEFAULT '', -- of the server that has it
    log_shipped  bigint  NOT NULL DEFAULT 0,  -- the number of the last record that the rows have
    grant_until  bigint  NOT NULL DEFAULT 0,  -- it hands out without the rows until then; never falls
    longest_hold bigint  NOT NULL DEFAULT 0,  -- milliseconds; never falls
    epoch        bigint  NOT NULL DEFAULT 0,  -- how often it was lost, with what it had
    doubt_until  bigint  NOT NULL DEFAULT 0,
    rehearsed    bigint  NOT NULL DEFAULT 0   -- the change of gateway_engine for which it kept up
) WITH (fillfactor = 20); -- the grant is prolonged many times a second

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
    updated_at    bigint NOT NULL,
    ceiling       bigint NOT NULL DEFAULT 0, -- above all that a log may have handed out
    epoch         bigint NOT NULL DEFAULT 0  -- of the shard, when the ceiling was raised
) WITH (fillfactor = 50);
ALTER TABLE signer ALTER COLUMN live SET STORAGE EXTERNAL;

-- What was CONSUMED: information, and no state. A nonce below next_nonce that is not in
-- live is CONSUMED whether its row is kept or not. tx_hashes: 32 bytes each, the newest,
-- then those that it replaced, oldest first. Old rows are found by reading the table in
-- pieces, not by an index (prune.go).
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

-- ANALYZE holds back the pruning of dead rows, those of the table signer too, for as long as
-- it takes. A tenth of the usual sample takes a tenth of the time; no plan depends on it.
ALTER TABLE signer_history ALTER signer_id SET STATISTICS 10, ALTER nonce SET STATISTICS 10, ALTER attempt SET STATISTICS 10,
    ALTER holder SET STATISTICS 10, ALTER tx_hashes SET STATISTICS 10, ALTER reason SET STATISTICS 10, ALTER at SET STATISTICS 10;

CREATE TABLE signer_request (
    signer_id    bigint NOT NULL,
    request_id   text   NOT NULL COLLATE "C",
    request_hash bytea  NOT NULL,
    nonces       text   NOT NULL, -- [[nonce, attempt], ...]
    created_at   bigint NOT NULL,
    PRIMARY KEY (signer_id, request_id)
);

ALTER TABLE signer_request ALTER signer_id SET STATISTICS 10, ALTER request_id SET STATISTICS 10, ALTER request_hash SET STATISTICS 10,
    ALTER nonces SET STATISTICS 10, ALTER created_at SET STATISTICS 10;

-- Signers that may have a hold to be ended, each once.
CREATE TABLE signer_due (
    signer_id bigint PRIMARY KEY,
    shard_id  int    NOT NULL,
    due_at    bigint NOT NULL
);
CREATE INDEX signer_due_at ON signer_due (shard_id, due_at, signer_id);

-- Signers of chains with nonces that are open, or not final yet, each once. kind: nonce.WatchKind;
-- above 2 something keeps the signer's transactions from being mined: from when on, and which nonce.
CREATE TABLE signer_watch (
    signer_id bigint   PRIMARY KEY,
    shard_id  int      NOT NULL,
    kind      smallint NOT NULL,
    nonce     bigint   NOT NULL,
    since     bigint   NOT NULL
);
CREATE INDEX signer_watch_shard ON signer_watch (shard_id, signer_id);
CREATE INDEX signer_watch_trouble ON signer_watch (signer_id) WHERE kind > 2;

-- Transactions that gateways give to nodes of chains, until a block has used their nonces.
-- state: nonce/sent.go. raw: of an open one, else empty.
CREATE TABLE signer_sent (
    signer   text     NOT NULL COLLATE "C",
    nonce    bigint   NOT NULL,
    tx_hash  bytea    NOT NULL,
    shard_id int      NOT NULL,
    payment  bytea    NOT NULL, -- the same for transactions that pay the same to the same
    raw      bytea    NOT NULL,
    state    smallint NOT NULL,
    look_at  bigint   NOT NULL,
    PRIMARY KEY (signer, nonce, tx_hash)
);
ALTER TABLE signer_sent ALTER COLUMN raw SET STORAGE EXTERNAL;
CREATE INDEX signer_sent_look ON signer_sent (shard_id, look_at);

-- The lease: one a node. A row stays when its node leaves: it carries the incarnation.
CREATE TABLE gateway_node (
    node        text    PRIMARY KEY COLLATE "C",
    incarnation bigint  NOT NULL,
    counter     bigint  NOT NULL, -- heartbeats of the incarnation
    lease_until bigint  NOT NULL, -- 0: it has none yet
    url         text    NOT NULL,
    mode        text    NOT NULL,
    gone        boolean NOT NULL, -- it has left
    started_at  bigint  NOT NULL,
    seen_at     bigint  NOT NULL
) WITH (fillfactor = 50);

-- What engine is wanted of all shards. One row.
CREATE TABLE gateway_engine (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    change      bigint  NOT NULL, -- grows with every change
    performance boolean NOT NULL,
    degraded    boolean NOT NULL, -- a node went back to reliable by itself
    reason      text    NOT NULL,
    rehearse    bigint  NOT NULL, -- milliseconds
    at          bigint  NOT NULL
);
INSERT INTO gateway_engine VALUES (true, 0, false, false, '', 0, 0);

-- What principals are called, for people. principal is the signed number of eight bytes, as
-- in signer_history.holder.
CREATE TABLE gateway_principal (
    principal bigint PRIMARY KEY,
    name      text   NOT NULL COLLATE "C"
);

-- API keys. The secret is not here, only the SHA-256 of the key.
CREATE TABLE auth_key (
    id         text        PRIMARY KEY COLLATE "C",
    principal  text        NOT NULL COLLATE "C",
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX auth_key_principal ON auth_key (principal);

-- One row. Whoever changes a key locks it, so that keys change one after the other, and
-- gives it a number that was never there, by which others see that they did.
CREATE TABLE auth_key_generation (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint  NOT NULL
);
INSERT INTO auth_key_generation (number) VALUES (1);

-- Tickets that were issued and not redeemed yet: the SHA-256 of each, who it is for, and by
-- which credential, which ends at ends_at.
CREATE TABLE auth_ticket (
    hash       bytea       PRIMARY KEY CHECK (octet_length(hash) = 32),
    principal  text        NOT NULL COLLATE "C",
    credential text        NOT NULL,
    ends_at    timestamptz,
    expires_at timestamptz NOT NULL
);
CREATE INDEX auth_ticket_principal ON auth_ticket (principal, expires_at);
CREATE INDEX auth_ticket_expires ON auth_ticket (expires_at);

-- broken refuses a statement as a whole: something is not as the rules leave it. The code is
-- one that no statement means by itself.
-- +goose StatementBegin
CREATE FUNCTION broken(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', what USING ERRCODE = 'division_by_zero';
END $$;
-- +goose StatementEnd

-- live_number reads a number of a live state, and where the next thing begins.
-- +goose StatementBegin
CREATE FUNCTION live_number(live bytea, INOUT place int, OUT number bigint) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    shift int := 0;
BEGIN
    number := 0;
    LOOP
        number := number | ((get_byte(live, place) & 127)::bigint << shift);
        place := place + 1;
        EXIT WHEN get_byte(live, place - 1) < 128;
        shift := shift + 7;
    END LOOP;
END $$;
-- +goose StatementEnd

-- live_checksum is the CRC-32C of the first bytes of a live state.
-- +goose StatementBegin
CREATE FUNCTION live_checksum(live bytea, size int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    crc bigint := 4294967295;
BEGIN
    FOR i IN 0 .. size - 1 LOOP
        crc := crc # get_byte(live, i);
        FOR bit IN 1 .. 8 LOOP
            crc := (crc >> 1) # ((crc & 1) * 2197175160);
        END LOOP;
    END LOOP;
    RETURN crc # 4294967295;
END $$;
-- +goose StatementEnd

-- live_entries are the nonces of a live state, as nonce/live_codec.go writes it. Of one that
-- no gateway would read there is one row, which is UNREADABLE.
-- +goose StatementBegin
CREATE FUNCTION live_entries(live bytea) RETURNS TABLE (nonce bigint, status text, attempt bigint, held_until bigint, holder bigint, reason text, tx_hashes bytea,
    earlier_attempt bigint, earlier_reason text, earlier_tx_hash bytea)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    reasons CONSTANT text[] := ARRAY['', 'record_first', 'forwarded', 'repair', 'unknown', 'expired', 'not_recorded', 'unseen', 'in_doubt'];
    size    CONSTANT int := octet_length(live) - 4;
    place   int := 1;
    flags   int;
    because int; -- the number of the reason
    earlier int; -- the flags of an earlier hold
    number  bigint;
    until   bigint := 0;
BEGIN
    IF live = '' THEN
        RETURN;
    END IF;
    IF size < 1 OR get_byte(live, 0) <> 1 OR live_checksum(live, size) <> ('x' || encode(substring(live FROM size + 1), 'hex'))::bit(32)::bigint THEN
        status := 'UNREADABLE';
        RETURN NEXT;
        RETURN;
    END IF;
    nonce := -1;
    holder := 0;
    WHILE place < size LOOP
        SELECT * INTO place, number FROM live_number(live, place);
        nonce := nonce + 1 + number;
        flags := get_byte(live, place);
        place := place + 1;
        status := CASE flags & 1 WHEN 1 THEN 'RELEASED' ELSE 'HELD' END;
        attempt := 1;
        IF flags & 2 = 0 THEN
            SELECT * INTO place, attempt FROM live_number(live, place);
        END IF;
        held_until := NULL;
        IF flags & 1 = 0 THEN
            SELECT * INTO place, number FROM live_number(live, place);
            until := until + (((number >> 1) & 9223372036854775807) # -(number & 1));
            held_until := until;
        END IF;
        IF flags & 4 = 0 THEN
            holder := ('x' || encode(substring(live FROM place + 1 FOR 8), 'hex'))::bit(64)::bigint;
            place := place + 8;
        END IF;
        because := flags >> 4;
        earlier_attempt := NULL;
        earlier_reason := NULL;
        earlier_tx_hash := NULL;
        IF because = 14 THEN
            earlier := get_byte(live, place);
            because := earlier & 15;
            SELECT * INTO place, number FROM live_number(live, place + 1);
            earlier_attempt := attempt - number;
            earlier_reason := CASE earlier & 16 WHEN 16 THEN 'repair' ELSE 'unseen' END;
            IF earlier & 32 <> 0 THEN
                earlier_tx_hash := substring(live FROM place + 1 FOR 32);
                place := place + 32;
            END IF;
        END IF;
        IF because = 15 THEN
            SELECT * INTO place, number FROM live_number(live, place);
            reason := convert_from(substring(live FROM place + 1 FOR number::int), 'UTF8');
            place := place + number::int;
        ELSE
            reason := reasons[because + 1];
        END IF;
        tx_hashes := '';
        IF flags & 8 <> 0 THEN
            number := get_byte(live, place);
            tx_hashes := substring(live FROM place + 2 FOR 32 * number::int);
            place := place + 1 + 32 * number::int;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
-- +goose StatementEnd

-- What lives of each signer, for people.
CREATE VIEW signer_live AS
SELECT s.signer, e.nonce, e.status, e.attempt, to_timestamp(e.held_until / 1000.0) AS held_until,
    coalesce(p.name, CASE WHEN e.holder <> 0 THEN lpad(to_hex(e.holder), 16, '0') END) AS holder, nullif(e.reason, '') AS reason,
    CASE WHEN e.tx_hashes <> '' THEN '0x' || encode(substring(e.tx_hashes FOR 32), 'hex') END AS tx_hash,
    (SELECT array_agg('0x' || encode(substring(e.tx_hashes FROM 32 * k + 1 FOR 32), 'hex') ORDER BY k) FROM generate_series(1, octet_length(e.tx_hashes) / 32 - 1) k) AS replaced,
    e.earlier_attempt, e.earlier_reason, '0x' || encode(e.earlier_tx_hash, 'hex') AS earlier_tx_hash
FROM signer s CROSS JOIN LATERAL live_entries(s.live) e LEFT JOIN gateway_principal p ON p.principal = e.holder;
