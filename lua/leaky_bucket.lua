-- leaky_bucket: GCRA. The state is one time, the theoretical arrival time (TAT): when
-- the next request would be due in a steady flow. A request may come `burst` ahead.
-- The level of bucket.lua is TAT - now. Source: ITU-T I.371, virtual scheduling.
-- State: "tat fraction unit drain"; fraction is in 1/drain microseconds.
algorithms.lb = function()
  local M = {}

  function M.load(key, rule, now)
    local tat, fraction, unit, drain = match(call('GET', key) or '', '^(%d+) (%d+) (%d+) (%d+)$')
    local level = 0
    if tat then
      level = max(0, (tonumber(tat) - now) * tonumber(drain) + tonumber(fraction))
      unit = tonumber(unit)
      if unit ~= rule.unit then level = ceil(level * rule.unit / unit) end
    end
    -- More than full only when the clock ran back or the rule shrank.
    return { now = now, level = min(level, rule.capacity * rule.unit) }
  end

  function M.save(key, s, rule)
    local fraction = s.level % rule.drain
    local tat = s.now + (s.level - fraction) / rule.drain
    call('SET', key, format('%.0f %.0f %.0f %.0f', tat, fraction, rule.unit, rule.drain),
      'PX', ttl(s.level / rule.drain))
  end

  return bucket(M)
end
