-- Additions to bucket.lua for a leased token_bucket.

--- functions
-- pass returns the level at `time` of a level at `at`. The level does not drain below what
-- nodes may still hold: the grants of the lease period of `at` and of the one before. The
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
