-- +goose Up
-- What principals are called, for people. principal is the signed number of the eight
-- bytes, as in signer_nonce_allocation.holder.
CREATE TABLE gateway_principal (
    principal bigint PRIMARY KEY,
    name      text   COLLATE "C" NOT NULL
);

-- tx_hash may have more than one hash, 32 bytes each: the newest, then those that it
-- replaced, oldest first. Older programs read the newest.
CREATE OR REPLACE VIEW signer_allocation AS
SELECT s.signer, a.nonce,
       (ARRAY['HELD', 'RELEASED', 'CONSUMED'])[a.status] AS status,
       a.attempt, '0x' || encode(substring(a.tx_hash FOR 32), 'hex') AS tx_hash, a.reason, a.held_until, a.fencing_token, a.created_at, a.updated_at,
       (SELECT array_agg('0x' || encode(substring(a.tx_hash FROM 32 * k + 1 FOR 32), 'hex') ORDER BY k)
        FROM generate_series(1, length(a.tx_hash) / 32 - 1) k) AS replaced,
       coalesce(p.name, lpad(to_hex(a.holder), 16, '0')) AS holder
FROM signer_nonce_allocation a JOIN signer_nonce_state s USING (signer_id) LEFT JOIN gateway_principal p ON p.principal = a.holder;
