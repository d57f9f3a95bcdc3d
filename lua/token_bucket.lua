-- token_bucket: a bucket of `capacity` tokens, refilled at limit/window. Kept upside
-- down: the level is what is missing from a full bucket (see bucket.lua).
-- State: "time level unit"; unit lets a changed rule convert the level.
algorithms.tb = function()
  local M = {}

  function M.load(key, rule, now)
    local at, level, unit = match(call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
    at, level, unit = tonumber(at) or 0, tonumber(level) or 0, tonumber(unit) or rule.unit
    now = max(now, at)
    if unit ~= rule.unit then level = ceil(level * rule.unit / unit) end
    level = max(0, level - (now - at) * rule.drain)
    return { now = now, level = min(level, rule.capacity * rule.unit) }
  end

  function M.save(key, s, rule)
    call('SET', key, format('%.0f %.0f %.0f', s.now, s.level, rule.unit), 'PX', ttl(s.level / rule.drain))
  end

  return bucket(M)
end
