-- Additions to bucket.lua for a region's part of a token_bucket in escrow.
--
-- State: "time level unit have out till loan". have is the region's share of the burst, in
-- tokens of the largest tier; out is how many tokens other regions hold, until `till`; loan
-- is until when this region may keep tokens that their lenders still count. The level is
-- what a full part lacks, so it stays at or above out. Borrowed tokens lower it further,
-- below 0 if they exceed the part.

--- functions
-- begin returns the state of a missing key: an empty part as of the store's start, because
-- the store may have lost what was spent. The last of KEYS records that start; a store that
-- loses its data loses it too.
local function begin(rule)
  local open = redis.call('GET', KEYS[#KEYS])
  if not open then
    open = string.format('%.0f', now + 10000000) -- another store's clock may have been ahead
    redis.call('SET', KEYS[#KEYS], open)
  end
  open = math.min(open + 0, now)
  local have = open < rule.since and rule.have - rule.young or rule.have
  return open, have * rule.unit, have
end

-- drop drains a level, but not below floor until `till`.
local function drop(level, from, to, rate, floor, till)
  if from < till then
    local part = math.min(to, till)
    level, from = math.max(level - (part - from) * rate, math.min(level, floor)), part
  end
  if to > from then level = math.max(level - (to - from) * rate, math.min(level, 0)) end
  return level
end

-- aged returns the level at `time` of a level at `at`, and the level to judge by. Capacity
-- that a part gains arrives without tokens and refills from rule.since on.
local function aged(rule, level, at, time, had, out, till, loan)
  local max, min = math.max, math.min
  local young = at < rule.since and rule.young or 0
  local have, floor = rule.have - young, at <= till and out * rule.unit or 0
  if level < floor and time > loan then level = floor end
  if have > had then
    level = max(level, min(level + (have - had) * rule.unit, have * rule.unit))
  elseif have < had and rule.have == rule.capacity then
    level = max(level - (had - have) * rule.unit, min(level, floor))
  end
  local judged = min(level, max(floor, (young == 0 and rule.capacity or have) * rule.unit))
  if at < rule.since then
    local since = min(rule.since, time)
    level = drop(level, at, since, rule.old, floor, till) + young * rule.unit
    judged = drop(judged, at, since, rule.old, floor, till) + young * rule.unit
    at = since
  end
  if time > at then
    level, judged = drop(level, at, time, rule.drain, floor, till), drop(judged, at, time, rule.drain, floor, till)
  end
  return level, judged
end
