-- +goose Up
-- API keys. The secret is not here, only the SHA-256 of the key. Times are in
-- microseconds since 1970.
CREATE TABLE auth_key (
    id         TEXT    PRIMARY KEY,
    principal  TEXT    NOT NULL,
    hash       BLOB    NOT NULL CHECK (length(hash) = 32),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;
CREATE INDEX auth_key_principal ON auth_key (principal);

-- One row, with a number that is another one after each change of a key.
CREATE TABLE auth_key_generation (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL
);
INSERT INTO auth_key_generation (one, number) VALUES (1, 1);

-- Tickets that were issued and not redeemed yet: the SHA-256 of each, who it is for, and
-- by which credential, which ends at ends_at.
CREATE TABLE auth_ticket (
    hash       BLOB    PRIMARY KEY CHECK (length(hash) = 32),
    principal  TEXT    NOT NULL,
    credential TEXT    NOT NULL,
    ends_at    INTEGER,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX auth_ticket_principal ON auth_ticket (principal, expires_at);
CREATE INDEX auth_ticket_expires ON auth_ticket (expires_at);
