-- Before a read: the caller's token goes in, where a lower one, or the same, is.
-- Checks: the state is of the caller's key, of no higher token, of what has served (a
--   copy may have come late, when that was lost), and of a version that is not below
--   ARGV[1], "id token version ", but below ARGV[2], the next epoch; as many holds and
--   released nonces are there as it says.
-- Writes: the token.
local s = call('HGET', KEYS[1], 's')
if not s then return {3, 'there is no state'} end
local id, token, version, rest = string.match(s, '^(%d+) (%d+) (%d+) (.*)$')
local wid, wtoken, least = string.match(ARGV[1], '^(%d+) (%d+) (%d+) $')
if not id then return {3, 'the state cannot be read'} end
if id ~= wid then return {3, 'the state is of key ' .. id .. ' and not ' .. wid} end
if less(wtoken, token) then return {1, 'token ' .. token .. ' is there'} end
if not call('HGET', KEYS[1], 'serves') then return {3, 'it is a copy that never served'} end
if less(version, least) or not less(version, ARGV[2]) then
  return {3, 'version ' .. version .. ' is there and the store has ' .. least}
end
local at = #id + #token + #version + 3
local why = incomplete(s, at, KEYS[2], KEYS[3])
if why then return why end
if token ~= wtoken then
  s = id .. ' ' .. wtoken .. ' ' .. version .. ' ' .. rest
  at = #id + #wtoken + #version + 3
  call('HSET', KEYS[1], 's', s)
end
