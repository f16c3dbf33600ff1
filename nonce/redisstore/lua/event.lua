-- event is what an entry of a stream has in its field e, "" when it has none.
local function event(entry)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'e' then return entry[2][i + 1] end
  end
  return ''
end
