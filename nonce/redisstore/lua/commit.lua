-- commit applies one change of one signer.
-- Checks: token and version are exactly the caller's; as many holds and released
--   nonces are there as the state says, and as the caller believes; new nonces are
--   not below the cursor, or, by a repair, without a row; each other row is as the change
--   says; no request id is known, unless there is no event: the store has found them
--   new then.
-- Writes: the event; state and rows; holds; released nonces; request ids. The event
--   comes first: nothing after it can be refused, for the checks have read all keys.
--
-- KEYS: rows, held, released, stream, a request id each
-- ARGV: 1 "id token version ", believed       2 the same, new
--       3 held, believed                      4 held, new
--       5 " next floor", new                  6 how many more are released
--       7 event; "": none, as the store has followed already, and CONSUMED rows go
--       8 milliseconds a request id is kept, 0: for good
--       9 "": or the new floor, 19 digits: released nonces below it become CONSUMED
--      10 " token" of such a row    11 " version " of it    12 its reason
--      13 the lowest new nonce that no repair hands out; "": none
--      14 n, then n nonces, then n times how the row must begin (see below); "-": there
--         must be none
--       then groups, each with its length before it: HSET, HDEL, ZADD held,
--       ZREM held, ZADD released, ZREM released; then a value for each request id
local want = ARGV[1]
local n = tonumber(ARGV[14])
local first, last = 15, 14 + n
local s, why, held, released, cursor
repeat
  local to = math.min(first + slice - 1, last)
  local rows = call('HMGET', KEYS[1], 's', unpack(ARGV, first, to))
  if not s then
    s = rows[1]
    if not s or string.sub(s, 1, #want) ~= want then return refusal(s, want) end
  end
  for i = first, to do
    local row, as = rows[i - first + 2], ARGV[i + n]
    if row then
      if string.sub(row, 1, #as) ~= as then return {3, 'the row of nonce ' .. ARGV[i] .. ' is ' .. row} end
    elseif as ~= '-' and string.byte(as) ~= 67 then -- a CONSUMED one may be gone: it was flushed
      return {3, 'the row of nonce ' .. ARGV[i] .. ' is missing'}
    end
  end
  first = to + 1
until first > last
why, held, released, cursor = incomplete(s, #want, KEYS[2], KEYS[3])
if why then return why end
if ARGV[13] ~= '' and less(ARGV[13], cursor) then
  return {3, 'nonce ' .. ARGV[13] .. ' is not new, the cursor is ' .. cursor}
end
if held ~= ARGV[3] then return {3, held .. ' holds are there and not ' .. ARGV[3]} end
for i = 5, ARGV[7] ~= '' and #KEYS or 0, slice do
  if call('EXISTS', unpack(KEYS, i, math.min(i + slice - 1, #KEYS))) > 0 then return {2, 'a request id is known'} end
end

local at = last + n + 1 -- the next group
local below, fallen -- released nonces below the floor, and their rows as they will be
if ARGV[9] ~= '' then
  local taken, p = {}, at
  for _ = 1, 5 do p = p + tonumber(ARGV[p]) + 1 end
  for i = p + 1, p + tonumber(ARGV[p]) do taken[ARGV[i]] = true end
  below, fallen = {}, {}
  for _, member in ipairs(call('ZRANGE', KEYS[3], '-', '(' .. ARGV[9], 'BYLEX')) do
    if not taken[member] then
      local nonce = string.match(member, '^0*(%d+)$')
      local row = call('HGET', KEYS[1], nonce)
      local attempt, holder, ended, rest = string.match(row or '', '^R(%d+) %d+(@?[%da-f]*)(#?) (.*)$')
      if not attempt then return {3, 'the row of released nonce ' .. nonce .. ' is missing'} end
      below[#below + 1] = nonce
      local hashes = ended == '#' and string.sub(rest, 1, 1 + 32 * (string.byte(rest) - 103)) or '-'
      fallen[#fallen + 1] = 'C' .. attempt .. ARGV[10] .. holder .. ARGV[11] .. hashes .. ARGV[12]
    end
  end
  released = released - #below
end

if ARGV[7] ~= '' then
  if below then
    call('XADD', KEYS[4], '*', 'e', ARGV[7], 'b', table.concat(below, ' '))
  else
    call('XADD', KEYS[4], '*', 'e', ARGV[7])
  end
end

local state = ARGV[2] .. ARGV[4] .. ' ' .. (released + ARGV[6]) .. ARGV[5]
local sets = tonumber(ARGV[at])
local to = math.min(sets, slice)
call('HSET', KEYS[1], 's', state, unpack(ARGV, at + 1, at + to))
for i = to + 1, sets, slice do
  call('HSET', KEYS[1], unpack(ARGV, at + i, at + math.min(i + slice - 1, sets)))
end
at = at + sets + 1

local function group(command, key)
  local count = tonumber(ARGV[at])
  for i = 1, count, slice do
    call(command, key, unpack(ARGV, at + i, at + math.min(i + slice - 1, count)))
  end
  at = at + count + 1
end
group('HDEL', KEYS[1])
group('ZADD', KEYS[2])
group('ZREM', KEYS[2])
group('ZADD', KEYS[3])
group('ZREM', KEYS[3])
if below and #below > 0 then
  call('ZREMRANGEBYLEX', KEYS[3], '-', '(' .. ARGV[9])
  for i = 1, #below do
    if ARGV[7] ~= '' then call('HSET', KEYS[1], below[i], fallen[i]) else call('HDEL', KEYS[1], below[i]) end
  end
end
for i = 5, #KEYS do
  if ARGV[8] == '0' then
    call('SET', KEYS[i], ARGV[at + i - 5])
  else
    call('SET', KEYS[i], ARGV[at + i - 5], 'PX', ARGV[8])
  end
end
return 0
