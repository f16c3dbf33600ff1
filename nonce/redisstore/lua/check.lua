-- check compares and writes nothing.
-- Checks: token and version are exactly the caller's; as many holds and released
--   nonces are there as the state says.
--
-- KEYS: rows, held, released
-- ARGV: 1 "id token version "
local s = call('HGET', KEYS[1], 's')
if not s or string.sub(s, 1, #ARGV[1]) ~= ARGV[1] then return refusal(s, ARGV[1]) end
return incomplete(s, #ARGV[1], KEYS[2], KEYS[3]) or 0
