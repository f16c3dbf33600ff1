-- trim removes what was flushed from the head of a stream.
-- Checks: the last event that was flushed is there, byte by byte (else somebody else
--   has trimmed, or this is another stream), and none is before the first.
-- Writes: removes the events.
--
-- KEYS: stream
-- ARGV: 1 id of the first      2 id of the last, 3 the id after it      4 its event
-- Returns 0 and how many were removed
local last = call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
if not last or event(last) ~= ARGV[4] then return {0, 0} end
local before = call('XRANGE', KEYS[1], '-', '(' .. ARGV[1], 'COUNT', 1)[1]
if before then return {3, 'event ' .. before[1] .. ' is before what was flushed'} end
return {0, call('XTRIM', KEYS[1], 'MINID', ARGV[3])}
