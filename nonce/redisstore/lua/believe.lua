-- Before a read: token and version are exactly the caller's, ARGV[1].
local s = call('HGET', KEYS[1], 's')
if not s or string.sub(s, 1, #ARGV[1]) ~= ARGV[1] then return refusal(s, ARGV[1]) end
local at = #ARGV[1]
