-- dead moves an event to the stream of those that can never be applied.
-- Checks: the event is there, byte by byte.
-- Writes: adds it there with the reason, and removes it here.
--
-- KEYS: stream, dead
-- ARGV: 1 id      2 event      3 why
-- Returns 0 and how many were moved
local entry = call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not entry or event(entry) ~= ARGV[2] then return {0, 0} end
local fields = entry[2]
fields[#fields + 1] = 'w'
fields[#fields + 1] = ARGV[3]
call('XADD', KEYS[2], '*', unpack(fields))
return {0, call('XDEL', KEYS[1], ARGV[1])}
