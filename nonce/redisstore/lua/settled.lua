-- settled removes CONSUMED rows that the store has.
-- Checks: each row is CONSUMED by a version that was flushed.
-- Writes: removes those rows.
--
-- KEYS: rows
-- ARGV: 1 the version that was flushed      2… nonces
local gone = {}
for i = 2, #ARGV, slice do
  local to = math.min(i + slice - 1, #ARGV)
  local rows = call('HMGET', KEYS[1], unpack(ARGV, i, to))
  for j = i, to do
    local version = string.match(rows[j - i + 1] or '', '^C%d+ [%d@a-f]+ (%d+) ')
    if version and not less(ARGV[1], version) then gone[#gone + 1] = ARGV[j] end
  end
end
for i = 1, #gone, slice do
  call('HDEL', KEYS[1], unpack(gone, i, math.min(i + slice - 1, #gone)))
end
return 0
