-- forget removes a signer. Its request ids stay until their time has come.
-- Checks: no higher token is there, neither of a state nor of a copy under way.
-- Writes: removes all three keys.
--
-- KEYS: rows, held, released
-- ARGV: 1 token
for _, s in ipairs(call('HMGET', KEYS[1], 's', 'seed')) do
  local token = string.match(s or '', '^%d+ (%d+) ')
  if token and less(ARGV[1], token) then return {1, 'token ' .. token .. ' is there'} end
end
call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
return 0
