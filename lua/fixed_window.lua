-- fixed_window: a counter per window, windows aligned to the Unix epoch.
-- State: "start count".
algorithms.fw = function()
  local M = {}

  function M.load(key, rule, now)
    local at, count = match(call('GET', key) or '', '^(%d+) (%d+)$')
    at, count = tonumber(at) or 0, tonumber(count) or 0
    local stepped
    now, stepped = clock(now, at, rule.window)
    local start = now - now % rule.window
    if at < start then count = 0 end
    return { now = now, start = start, count = count, stepped = stepped }
  end

  function M.fits(s, rule, cost, n)
    if cost == 0 then return n end
    return max(0, min(n, floor((rule.limit - s.count) / cost)))
  end

  function M.charge(s, rule, units)
    s.count = min(s.count + units, 4503599627370496)
  end

  function M.answer(s, rule, cost)
    local left = s.start + rule.window - s.now
    local retry = 0
    if s.count + cost > rule.limit then retry = left end
    return max(0, rule.limit - s.count), retry, s.count > 0 and left or 0
  end

  function M.save(key, s, rule)
    call('SET', key, format('%.0f %.0f', s.start, s.count), 'PX', ttl(s.start + rule.window - s.now))
  end

  function M.refund(key, rule, units, at, now)
    local s = M.load(key, rule, now)
    if s.start ~= at - at % rule.window or s.count == 0 then return end
    s.count = max(0, s.count - units)
    M.save(key, s, rule)
  end

  return M
end
