#!lua flags=no-writes
-- Compares fences. KEYS: of each shard its fence and its log. ARGV: of each the fence that is
-- believed. Returns of each 'ok', or the fence found, '' for none.
local out = {}
for i = 1, #KEYS / 2 do
    local found = redis.call('GET', KEYS[2 * i - 1])
    out[i] = found == ARGV[i] and 'ok' or found or ''
end
return out
