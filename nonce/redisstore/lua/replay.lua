-- replay moves events back from the dead ones to the end of the stream.
-- Checks: each event is there.
-- Writes: adds it there, and removes it here.
--
-- KEYS: stream, dead
-- ARGV: ids, in order
-- Returns 0 and how many were moved
local moved = 0
for i = 1, #ARGV do
  local entry = call('XRANGE', KEYS[2], ARGV[i], ARGV[i])[1]
  if entry then
    local fields, back = entry[2], {}
    for j = 1, #fields, 2 do
      if fields[j] ~= 'w' then
        back[#back + 1] = fields[j]
        back[#back + 1] = fields[j + 1]
      end
    end
    call('XADD', KEYS[1], '*', unpack(back))
    call('XDEL', KEYS[2], ARGV[i])
    moved = moved + 1
  end
end
return {0, moved}
