-- token_bucket and leaky_bucket share this: a level that requests fill and time drains.
-- One request is `unit` units, a microsecond drains `drain` of them, and drain/unit is
-- limit/window in lowest terms. Whole numbers only, so nothing is lost to rounding. They
-- differ in what `capacity` means: see token_bucket.lua and leaky_bucket.lua.
-- State: "time level unit"; unit lets a changed rule convert the level.
--
-- A key may hold more than the present rule allows: the rule shrank, or a client of a
-- larger tier filled it. It is then judged as just full when it was last charged, so no
-- client waits longer than for an empty bucket; but it keeps its true level, or a request
-- under the small limit would wipe out what was charged under the large one.
local function bucket()
  local M = {}

  function M.load(key, rule, now)
    local at, level, unit = match(call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
    at, level, unit = tonumber(at) or 0, tonumber(level) or 0, tonumber(unit) or rule.unit
    local stepped
    now, stepped = clock(now, at, rule.window)
    if unit ~= rule.unit then level = ceil(level * rule.unit / unit) end
    local drained = max(0, now - at) * rule.drain
    return {
      now = now,
      stepped = stepped,
      level = max(0, level - drained),
      judged = max(0, min(level, rule.capacity * rule.unit) - drained),
    }
  end

  function M.fits(s, rule, cost, n)
    if cost == 0 then return n end
    return max(0, min(n, floor((rule.capacity * rule.unit - s.judged) / (cost * rule.unit))))
  end

  function M.charge(s, rule, units)
    local full = rule.capacity * rule.unit
    local added = min(units, rule.capacity) * rule.unit
    if s.judged + added <= full then
      s.level = s.level + added
    else -- counting a denied attempt at most fills the bucket
      s.level = max(s.level, min(s.level + added, full))
    end
    s.judged = min(s.judged + added, full)
  end

  function M.answer(s, rule, cost)
    local free = rule.capacity * rule.unit - s.judged
    local short = cost * rule.unit - free
    return floor(free / rule.unit), short > 0 and ceil(short / rule.drain) or 0, ceil(s.level / rule.drain)
  end

  function M.save(key, s, rule)
    -- The state matters until it has drained for the slowest of the tiers that share it.
    local lives = min(ceil(s.level / rule.drain) * rule.limit / rule.slowest, 4503599627370496)
    call('SET', key, format('%.0f %.0f %.0f', s.now, s.level, rule.unit), 'PX', ttl(lives))
  end

  -- Without the charge the bucket might have run empty sooner, so what drained since is
  -- not returned: a refund must never let too many pass.
  function M.refund(key, rule, units, at, now)
    local s = M.load(key, rule, now)
    local back = units * rule.unit - (s.now - at) * rule.drain
    if back <= 0 or s.level == 0 then return end
    s.level = max(0, s.level - back)
    M.save(key, s, rule)
  end

  return M
end
