-- +goose Up
-- API keys. The secret is not here, only the SHA-256 of the key.
CREATE TABLE auth_key (
    id         text        COLLATE "C" PRIMARY KEY,
    principal  text        COLLATE "C" NOT NULL,
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX auth_key_principal ON auth_key (principal);

-- One row. Whoever changes a key locks it, so that keys change one after the other,
-- and gives it a number that was never there, by which others see that they did.
CREATE TABLE auth_key_generation (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint  NOT NULL
);
INSERT INTO auth_key_generation (number) VALUES (1);

-- Tickets that were issued and not redeemed yet: the SHA-256 of each, who it is for, and
-- by which credential, which ends at ends_at.
CREATE TABLE auth_ticket (
    hash       bytea       PRIMARY KEY CHECK (octet_length(hash) = 32),
    principal  text        COLLATE "C" NOT NULL,
    credential text        NOT NULL,
    ends_at    timestamptz,
    expires_at timestamptz NOT NULL
);
CREATE INDEX auth_ticket_principal ON auth_ticket (principal, expires_at);
CREATE INDEX auth_ticket_expires ON auth_ticket (expires_at);
