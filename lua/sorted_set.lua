-- Shared by the algorithms that keep a sorted set.

--- functions
-- trim removes expired members from a sorted set of which `live` are not, but no more
-- than `most`: clearing a million at once would delay every other call. It returns how
-- many expired members are left.
local function trim(key, live, most)
  local old = redis.call('ZCARD', key) - live
  local gone = math.min(old, most)
  if gone > 0 then redis.call('ZREMRANGEBYRANK', key, 0, gone - 1) end
  return old - gone
end
