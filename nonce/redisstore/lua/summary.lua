-- summary returns state and figures of a signer, whoever owns it.
-- Checks: as many holds and released nonces are there as the state says.
--
-- KEYS: rows, held, released
-- ARGV: 1 now, microseconds     2 the reason of unknown holds, which are not overdue
-- Returns 0, state, how many holds are overdue at or above the floor, below it, the
-- lowest nonce of a hold that is not overdue ("": none), and how many are unknown
local s = call('HGET', KEYS[1], 's')
if not s then return {3, 'there is no state'} end
local prefix, floor = string.match(s, '^(%d+ %d+ %d+ )%d+ %d+ %d+ (%d+)$')
if not prefix then return {3, 'the state cannot be read'} end
local why = incomplete(s, #prefix, KEYS[2], KEYS[3])
if why then return why end
-- unknown reads the reason of a hold: what is behind its hashes, if it has an end.
local function unknown(row)
  local at = string.match(row or '', '^H%d+ [%da-f@]+ %d+ ()')
  if not at then return false end
  local letter = string.byte(row, at)
  local hashes = letter == 45 and 0 or letter - 103
  return string.sub(row, at + 1 + 32 * hashes) == ARGV[2]
end

local above, below, lowest, unsure = 0, 0, '', 0
local function holds(from, to, overdue)
  local nonces = call('ZRANGE', KEYS[2], from, to, 'BYSCORE')
  for i = 1, #nonces, slice do
    local last = math.min(i + slice - 1, #nonces)
    local rows = call('HMGET', KEYS[1], unpack(nonces, i, last))
    for j = i, last do
      local nonce, open = nonces[j], not overdue
      if unknown(rows[j - i + 1]) then open, unsure = true, unsure + 1 end
      if open then
        if lowest == '' or less(nonce, lowest) then lowest = nonce end
      elseif less(nonce, floor) then
        below = below + 1
      else
        above = above + 1
      end
    end
  end
end
holds('-inf', ARGV[1], true)
holds('(' .. ARGV[1], '+inf', false)
return {0, s, above, below, lowest, unsure}
