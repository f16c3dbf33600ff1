#!lua flags=allow-oom
-- Takes out what was shipped. KEYS: fence and log. ARGV: the owner's token, and the id of
-- the first record that stays.
local found = redis.call('GET', KEYS[1])
if found and string.match(found, '^(%d+) ') == ARGV[1] then
    return redis.call('XTRIM', KEYS[2], 'MINID', ARGV[2])
end
return -1
