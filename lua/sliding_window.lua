-- sliding_window: the previous window's count, weighted by how much of it the
-- sliding window still covers, plus the current one's. Weights are whole
-- milliseconds, so all sums are exact.
-- State: "start previous current".
algorithms.sw = function()
  local M = {}

  function M.load(key, rule, now)
    local at, previous, current = match(call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
    at, previous, current = tonumber(at) or 0, tonumber(previous) or 0, tonumber(current) or 0
    local stepped
    now, stepped = clock(now, at, rule.window)
    local start = now - now % rule.window
    if at < start then
      if at + rule.window >= start then previous = current else previous = 0 end
      current = 0
    end
    return {
      now = now, start = start, elapsed = floor((now - start) / 1000),
      previous = previous, current = current, stepped = stepped,
    }
  end

  -- used returns the weighted count in milliseconds of a full window.
  local function used(s, width)
    return s.previous * (width - s.elapsed) + s.current * width
  end

  function M.fits(s, rule, cost, n)
    if cost == 0 then return n end
    local width = rule.window / 1000
    return max(0, min(n, floor((rule.limit * width - used(s, width)) / (cost * width))))
  end

  -- The cap is no less than any valid limit and keeps used within 2^53.
  function M.charge(s, rule, units)
    s.current = min(s.current + units, floor(4503599627370496 / (rule.window / 1000)))
  end

  function M.answer(s, rule, cost)
    local width = rule.window / 1000
    local free = rule.limit * width - used(s, width)
    local retry, reset = 0, 0
    cost = min(cost, rule.limit) -- a higher cost never passes
    if free < cost * width then
      local room = rule.limit - cost
      if s.current <= room then -- the previous window has to fade further
        retry = s.start + ceil((s.previous - (room - s.current)) * width / s.previous) * 1000 - s.now
      else -- the current one has to become the previous one and fade
        retry = s.start + rule.window + ceil((s.current - room) * width / s.current) * 1000 - s.now
      end
    end
    if s.current > 0 then
      reset = s.start + 2 * rule.window - s.now
    elseif s.previous > 0 then
      reset = s.start + rule.window - s.now
    end
    return max(0, floor(free / width)), retry, reset
  end

  function M.save(key, s, rule)
    local last = s.current > 0 and 2 or 1
    call('SET', key, format('%.0f %.0f %.0f', s.start, s.previous, s.current),
      'PX', ttl(s.start + last * rule.window - s.now))
  end

  function M.refund(key, rule, units, at, now)
    local s = M.load(key, rule, now)
    if s.previous + s.current == 0 then return end
    local start = at - at % rule.window
    if start == s.start then
      s.current = max(0, s.current - units)
    elseif start == s.start - rule.window then
      s.previous = max(0, s.previous - units)
    else
      return
    end
    M.save(key, s, rule)
  end

  return M
end
