-- What a leased token_bucket needs in addition to bucket.lua.

--- functions
-- pass returns what a level becomes from `at` to `time`. It does not drain below what nodes
-- may still hold: what was granted in the lease time that `at` is in, and before. The
-- memory store's bucket.go shows why that suffices.
local function pass(rule, level, at, time, granted, before)
  local stop, held = at - at % rule.lease + rule.lease, granted + before
  for _ = 1, 2 do
    local till = math.min(time, stop)
    level = math.max(0, level - (till - at) * rule.drain, math.min(level, held * rule.unit))
    at, stop, held = till, stop + rule.lease, granted
  end
  return math.max(0, level - (time - at) * rule.drain)
end
