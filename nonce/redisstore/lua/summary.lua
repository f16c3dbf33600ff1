-- summary returns state and figures of a signer, whoever owns it.
-- Checks: as many holds and released nonces are there as the state says.
--
-- KEYS: rows, held, released
-- ARGV: 1 now, microseconds
-- Returns 0, state, how many holds are overdue at or above the floor, below it, and
-- the lowest nonce of a hold that is not overdue; "": none
local s = call('HGET', KEYS[1], 's')
if not s then return {3, 'there is no state'} end
local prefix, floor = string.match(s, '^(%d+ %d+ %d+ )%d+ %d+ %d+ (%d+)$')
if not prefix then return {3, 'the state cannot be read'} end
local why = incomplete(s, #prefix, KEYS[2], KEYS[3])
if why then return why end
local above, below, lowest = 0, 0, ''
for _, nonce in ipairs(call('ZRANGE', KEYS[2], '-inf', ARGV[1], 'BYSCORE')) do
  if less(nonce, floor) then below = below + 1 else above = above + 1 end
end
for _, nonce in ipairs(call('ZRANGE', KEYS[2], '(' .. ARGV[1], '+inf', 'BYSCORE')) do
  if lowest == '' or less(nonce, lowest) then lowest = nonce end
end
return {0, s, above, below, lowest}
