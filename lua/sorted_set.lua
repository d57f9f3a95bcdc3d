-- For the algorithms that use a sorted set.

--- functions
-- trim removes up to `most` expired members from a sorted set that also has `live` others,
-- and returns how many expired ones remain. Removing a million at once would delay every
-- other call.
local function trim(key, live, most)
  local old = redis.call('ZCARD', key) - live
  local gone = math.min(old, most)
  if gone > 0 then redis.call('ZREMRANGEBYRANK', key, 0, gone - 1) end
  return old - gone
end
