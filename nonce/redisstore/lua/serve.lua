-- Before the read of a signer that is about to enter: its copy is marked as what serves.
-- Checks: token and version are exactly the caller's; as many holds and released
--   nonces are there as the state says.
-- Writes: the mark.
local why = incomplete(s, at, KEYS[2], KEYS[3])
if why then return why end
call('HSET', KEYS[1], 'serves', '1')
