-- scan returns a part of the rows of a signer.
-- Checks: nothing.
--
-- KEYS: rows
-- ARGV: 1 cursor      2 how many, about
-- Returns 0, the next cursor and {nonce, row, …}, the state among them
local part = call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
return {0, part[1], part[2]}
