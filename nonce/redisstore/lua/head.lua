-- What every script begins with.
--
-- State is the field s of the hash of a signer's rows:
--   "id token version held released next floor", decimal without leading zeros.
-- Numbers of up to 63 bits are compared as text: Lua's are exact to 2^53 only.
-- Of what is calculated here nothing is larger than a number of rows.
--
-- An answer is 0, or begins with 0, when it was done; else it is a code and why:
-- 1 a higher token is there, 2 a request id is known, 3 it is not as believed.

local call = redis.call

-- slice is the most that is unpacked at once; even, so that pairs stay together.
local slice = 1000

local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- refusal says why a state does not begin with want, "id token version ".
local function refusal(s, want)
  if not s then return {3, 'there is no state'} end
  local id, token, version = string.match(s, '^(%d+) (%d+) (%d+) ')
  local wid, wtoken, wversion = string.match(want, '^(%d+) (%d+) (%d+) ')
  if not id then return {3, 'the state cannot be read'} end
  if id ~= wid then return {3, 'the state is of key ' .. id .. ' and not ' .. wid} end
  if less(wtoken, token) then return {1, 'token ' .. token .. ' is there'} end
  if token ~= wtoken then return {3, 'token ' .. token .. ' is there and not ' .. wtoken} end
  return {3, 'version ' .. version .. ' is there and not ' .. wversion}
end

-- incomplete says which of the signer's other keys has not as many members as the
-- state says; s is a state whose "id token version " is at bytes long. Else it
-- returns nil, held, released and next.
local function incomplete(s, at, heldKey, releasedKey)
  local held, released, next = string.match(s, '^(%d+) (%d+) (%d+) ', at + 1)
  if not held then return {3, 'the state cannot be read'} end
  if call('ZCARD', heldKey) ~= tonumber(held) then return {3, 'holds are missing'} end
  if call('ZCARD', releasedKey) ~= tonumber(released) then return {3, 'released nonces are missing'} end
  return nil, held, tonumber(released), next
end
