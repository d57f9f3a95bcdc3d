-- What token_bucket and leaky_bucket share: a level that requests fill and time drains.
-- One request is `unit` units, a microsecond drains `drain` of them, and drain/unit is
-- limit/window in lowest terms. Whole numbers only, so nothing is lost to rounding.
-- They differ in what `capacity` means: see token_bucket.lua and leaky_bucket.lua.
-- State: "time level unit"; unit lets a changed rule convert the level.
local function bucket()
  local M = {}

  function M.load(key, rule, now)
    local at, level, unit = match(call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
    at, level, unit = tonumber(at) or 0, tonumber(level) or 0, tonumber(unit) or rule.unit
    now = max(now, at)
    if unit ~= rule.unit then level = ceil(level * rule.unit / unit) end
    level = min(level, rule.capacity * rule.unit) -- the rule may have shrunk since
    return { now = now, level = max(0, level - (now - at) * rule.drain) }
  end

  function M.fits(s, rule, cost, n)
    if cost == 0 then return n end
    return max(0, min(n, floor((rule.capacity * rule.unit - s.level) / (cost * rule.unit))))
  end

  function M.charge(s, rule, units)
    s.level = min(s.level + min(units, rule.capacity) * rule.unit, rule.capacity * rule.unit)
  end

  function M.answer(s, rule, cost)
    local free = rule.capacity * rule.unit - s.level
    local short = cost * rule.unit - free
    return floor(free / rule.unit), short > 0 and ceil(short / rule.drain) or 0, ceil(s.level / rule.drain)
  end

  function M.save(key, s, rule)
    call('SET', key, format('%.0f %.0f %.0f', s.now, s.level, rule.unit), 'PX', ttl(s.level / rule.drain))
  end

  -- Without the charge the bucket may have run empty sooner, so what drained since
  -- is not given back: a refund must never let too many pass.
  function M.refund(key, rule, units, at, now)
    local s = M.load(key, rule, now)
    local back = units * rule.unit - (s.now - at) * rule.drain
    if back <= 0 or s.level == 0 then return end
    s.level = max(0, s.level - back)
    M.save(key, s, rule)
  end

  return M
end
