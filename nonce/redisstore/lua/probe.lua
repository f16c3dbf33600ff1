-- probe runs every command that the other scripts run, on keys of its own, which
-- are empty before and after: whoever may not run one is told at the start, and
-- not in the middle of a commit.
-- Checks: nothing.
-- Writes: removes what it wrote.
--
-- KEYS: hash, set, set, stream, string
call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local id = call('XADD', KEYS[4], '*', 'e', 'probe')
call('HSET', KEYS[1], 's', '1')
call('HMGET', KEYS[1], 's')
call('HGET', KEYS[1], 's')
call('HDEL', KEYS[1], 's')
call('ZADD', KEYS[2], 0, '1')
call('ZCARD', KEYS[2])
call('ZRANGE', KEYS[2], '-inf', 1, 'BYSCORE', 'LIMIT', 0, 1)
call('ZREM', KEYS[2], '1')
call('ZADD', KEYS[3], 0, '1')
call('ZREMRANGEBYLEX', KEYS[3], '-', '(2')
call('SET', KEYS[5], '1', 'PX', 1000)
call('EXISTS', KEYS[5])
call('GET', KEYS[5])
call('XRANGE', KEYS[4], '-', '+', 'COUNT', 1)
call('XTRIM', KEYS[4], 'MINID', id)
call('XDEL', KEYS[4], id)
call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
return 0
