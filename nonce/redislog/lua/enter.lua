#!lua flags=allow-oom
-- Puts a token and a higher try into a fence. KEYS: fence and log. ARGV: the token; 'enter',
-- where the one found must be lower, or 'raise', where it must be the same; and for 'raise'
-- the try that there is to be at least, so that one which comes late changes nothing.
-- Returns 'ok' and the fence after, or 'no' and the fence found, '' for none.
local found = redis.call('GET', KEYS[1])
if not found then
    return {'no', ''}
end
local token, try, head = string.match(found, '^(%d+) (%d+) (%d+)$')
if not token or ARGV[2] == 'enter' and tonumber(token) >= tonumber(ARGV[1]) or ARGV[2] == 'raise' and token ~= ARGV[1] then
    return {'no', found}
end
local raised = tonumber(try) + 1
if ARGV[2] == 'raise' then
    raised = math.max(tonumber(try), tonumber(ARGV[3]))
end
local after = ARGV[1] .. ' ' .. string.format('%.0f', raised) .. ' ' .. head
redis.call('SET', KEYS[1], after)
return {'ok', after}
