-- seed writes a piece of the copy of one signer. Until the last piece there is a
-- field seed in place of the state, which no other script finds.
-- Checks: no higher token is there, neither of a state nor of a copy under way; the
--   first piece does not meet a later version of its own token (it would be late);
--   each other one finds the copy as the piece before it left it, so that one that
--   was begun anew meanwhile, by a first piece that came late, is not taken for it.
-- Writes: rows, holds, released nonces, request ids; with the last piece, if then as
--   many holds are there as it says, the state.
--
-- KEYS: rows, held, released, a request id each
-- ARGV: 1 "id token version "       2 the piece's number, 0: first     3 1: last
--       4 held                      5 " next floor"
--       then groups, each with its length before it: HSET, ZADD held, ZADD released;
--       then for each request id a value and the milliseconds it is kept, 0: for good
local want = ARGV[1]
local _, wtoken, wversion = string.match(want, '^(%d+) (%d+) (%d+) $')
local there = call('HMGET', KEYS[1], 's', 'seed')
for i = 1, 2 do
  local token, version = string.match(there[i] or '', '^%d+ (%d+) (%d+) ')
  if token and less(wtoken, token) then return {1, 'token ' .. token .. ' is there'} end
  if i == 1 and token == wtoken and less(wversion, version) then
    return {3, 'version ' .. version .. ' is there, the copy is of ' .. wversion}
  end
end
if ARGV[2] == '0' then
  call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
elseif there[2] ~= want .. ARGV[2] then
  return {3, 'this copy is not under way'}
end
call('HSET', KEYS[1], 'seed', want .. (ARGV[2] + 1))
local at = 6
local function group(command, key)
  local count = tonumber(ARGV[at])
  for i = 1, count, slice do
    call(command, key, unpack(ARGV, at + i, at + math.min(i + slice - 1, count)))
  end
  at = at + count + 1
end
group('HSET', KEYS[1])
group('ZADD', KEYS[2])
group('ZADD', KEYS[3])
for i = 4, #KEYS do
  if ARGV[at + 1] == '0' then
    call('SET', KEYS[i], ARGV[at])
  else
    call('SET', KEYS[i], ARGV[at], 'PX', ARGV[at + 1])
  end
  at = at + 2
end
if ARGV[3] == '1' then
  local held = call('ZCARD', KEYS[2])
  if held ~= tonumber(ARGV[4]) then return {3, held .. ' holds are in the copy and not ' .. ARGV[4]} end
  call('HSET', KEYS[1], 's', want .. held .. ' ' .. call('ZCARD', KEYS[3]) .. ARGV[5])
  call('HDEL', KEYS[1], 'seed')
end
return 0
