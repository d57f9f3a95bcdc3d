-- concurrency: requests in flight, as a sorted set of slots. Each is scored with the time
-- at which it expires if the edge node that holds it dies.
algorithms.cc = function()
  local M = {}
  local chunk = 200 -- expired slots that one call removes

  function M.load(key, rule, now)
    return { key = key, now = now, count = call('ZCOUNT', key, format('(%.0f', now), '+inf') }
  end

  function M.fits(s, rule, cost, n)
    if cost == 0 then return n end
    if cost > 1 then return 0 end -- a request needs one slot
    return max(0, min(n, rule.limit - s.count))
  end

  function M.charge(s, rule, units, slot)
    if units == 0 then return end
    trim(s.key, s.count, chunk)
    s.count = s.count + call('ZADD', s.key, format('%.0f', s.now + rule.window), slot)
  end

  -- A slot may become free at any moment, so there is no retry time.
  function M.answer(s, rule, cost)
    local last = call('ZRANGE', s.key, -1, -1, 'WITHSCORES')[2]
    return max(0, rule.limit - s.count), 0, last and max(0, last - s.now) or 0
  end

  function M.save(key, s, rule)
    local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
    call('PEXPIRE', key, ttl(last - s.now))
  end

  function M.refund(key, rule, units, at, now, slot)
    call('ZREM', key, slot)
  end

  return M
end
