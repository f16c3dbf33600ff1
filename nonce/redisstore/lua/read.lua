-- read returns state, released nonces, overdue holds, rows and request ids.
-- Checks: as many holds and released nonces are there as the state says.
--
-- KEYS: rows, held, released, a request id each
-- ARGV: 1, 2 see above
--       3 most released nonces, lowest first      4 now, microseconds
--       5 most overdue holds, earliest first      6… nonces wanted
-- Returns 0, state, released, overdue, {nonce, row, …}, request ids; false: none
local why = incomplete(s, at, KEYS[2], KEYS[3])
if why then return why end
local free, due, ids = {}, {}, {}
if ARGV[3] ~= '0' then
  local floor = string.match(s, '(%d+)$')
  free = call('ZRANGE', KEYS[3], '[' .. string.rep('0', 19 - #floor) .. floor, '+', 'BYLEX', 'LIMIT', 0, ARGV[3])
end
if ARGV[5] ~= '0' then
  due = call('ZRANGE', KEYS[2], '-inf', ARGV[4], 'BYSCORE', 'LIMIT', 0, ARGV[5])
end
for i = 4, #KEYS do ids[#ids + 1] = call('GET', KEYS[i]) end

local wanted, rows = {}, {}
for i = 6, #ARGV do wanted[#wanted + 1] = ARGV[i] end
for i = 1, #free do
  free[i] = string.match(free[i], '^0*(%d+)$')
  wanted[#wanted + 1] = free[i]
end
for i = 1, #due do wanted[#wanted + 1] = due[i] end
for i = 1, #ids do
  if ids[i] then
    for nonce in string.gmatch(string.sub(ids[i], 17), '(%d+) %d+') do wanted[#wanted + 1] = nonce end
  end
end
for i = 1, #wanted, slice do
  local found = call('HMGET', KEYS[1], unpack(wanted, i, math.min(i + slice - 1, #wanted)))
  for j = 1, #found do
    if found[j] then
      rows[#rows + 1] = wanted[i + j - 1]
      rows[#rows + 1] = found[j]
    end
  end
end
return {0, s, free, due, rows, ids}
