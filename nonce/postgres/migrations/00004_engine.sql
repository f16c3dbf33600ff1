-- +goose Up
-- Redis servers that have had signers, each in one of its lives. A restart or a
-- failover makes another one of it.
CREATE TABLE engine_redis (
    redis_id    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id      text NOT NULL,
    repl_id     text NOT NULL,
    acceptance  bigint NOT NULL, -- signers may enter while it is engine_cluster's
    accepted_at timestamptz NOT NULL,
    UNIQUE (run_id, repl_id)
);

-- Where the cluster is on its way between the engines: one row. Each change of its
-- state raises its generation and names the one it was made from.
CREATE TABLE engine_cluster (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    state         text NOT NULL CHECK (state IN ('RELIABLE', 'DUAL_WRITE', 'PERFORMANCE', 'DRAIN_AND_SYNC', 'DEGRADED')),
    goal          text NOT NULL CHECK (goal IN ('RELIABLE', 'DUAL_WRITE', 'PERFORMANCE', 'DRAIN_AND_SYNC', 'DEGRADED')),
    generation    bigint NOT NULL,
    reason        text NOT NULL,
    changed_by    text NOT NULL,
    changed_at    timestamptz NOT NULL,
    observe_until timestamptz,
    acceptance    bigint NOT NULL DEFAULT 0, -- how often servers were accepted
    flush_shards  integer CHECK (flush_shards > 0) -- fixed by the first node that has Redis
);
INSERT INTO engine_cluster (state, goal, generation, reason, changed_by, changed_at)
VALUES ('RELIABLE', 'RELIABLE', 0, 'never changed', '', clock_timestamp());

-- How many engines a node knows of: one of an older version writes to every signer.
ALTER TABLE gateway_node ADD COLUMN engines smallint NOT NULL DEFAULT 1;

-- Which engine serves a signer: 0 reliable, 1 performance. Every write compares it.
-- Hand-outs do not change it, so the index leaves their updates in place.
ALTER TABLE signer_nonce_state ADD COLUMN engine smallint NOT NULL DEFAULT 0;
CREATE INDEX signer_nonce_state_performance ON signer_nonce_state (signer_id) WHERE engine = 1;

-- What else the engines need of a signer that has been in the performance engine. It
-- is not in the signer's row, where every hand-out would write it again. Who writes
-- it has locked the signer's row.
CREATE TABLE signer_nonce_engine (
    signer_id    bigint PRIMARY KEY,
    redis_id     integer NOT NULL,     -- who has, or had, the signer
    ceiling      bigint NOT NULL,      -- all that Redis ever handed out is below
    grant_until  timestamptz NOT NULL, -- when Redis has to stop if nobody extends it
    longest_hold interval NOT NULL,    -- that any node may have given
    doubt_below  bigint,               -- of the last loss: until then nothing below is handed out or swept
    doubt_until  timestamptz
) WITH (fillfactor = 50);
CREATE INDEX signer_nonce_engine_doubt ON signer_nonce_engine (doubt_until) WHERE doubt_until IS NOT NULL;

-- The deadline that the holder was told, where held_until is later because nothing
-- in doubt may be swept.
ALTER TABLE signer_nonce_allocation ADD COLUMN promised_until timestamptz;

-- The engines' columns under plain names, for people.
CREATE VIEW signer_engine AS
SELECT s.signer, CASE s.engine WHEN 1 THEN 'performance' ELSE 'reliable' END AS engine,
       s.version >> 32 AS epoch, s.version, e.ceiling, e.grant_until, e.longest_hold,
       e.doubt_below, e.doubt_until, r.run_id AS redis_run_id, r.repl_id AS redis_repl_id
FROM signer_nonce_state s LEFT JOIN signer_nonce_engine e USING (signer_id) LEFT JOIN engine_redis r USING (redis_id);
