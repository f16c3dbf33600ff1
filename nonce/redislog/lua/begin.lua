#!lua flags=allow-oom
-- Makes a log empty. KEYS: fence and log. ARGV: a token above the one found.
-- Returns 'ok', or the fence found.
local found = redis.call('GET', KEYS[1])
if found then
    local token = tonumber(string.match(found, '^(%d+) '))
    if not token or token >= tonumber(ARGV[1]) then
        return found
    end
end
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1] .. ' 0 0')
return 'ok'
