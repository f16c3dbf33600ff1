#!lua
-- Adds records. KEYS: of each shard its fence and its log. ARGV: of each the fence that is
-- believed, the fence after it, the id of the record, and the record. A server that is full
-- refuses it, and no other script.
-- Returns of each 'ok', or the fence found, '' for none.
local out = {}
for i = 1, #KEYS / 2 do
    local found = redis.call('GET', KEYS[2 * i - 1])
    if found == ARGV[4 * i - 3] then
        redis.call('XADD', KEYS[2 * i], ARGV[4 * i - 1], 'r', ARGV[4 * i])
        redis.call('SET', KEYS[2 * i - 1], ARGV[4 * i - 2])
        out[i] = 'ok'
    else
        out[i] = found or ''
    end
end
return out
