-- concurrency: requests in flight, a sorted set of leases scored with the time at
-- which each expires, should the edge node that holds it die.
algorithms.cc = function()
  local M = {}

  function M.load(key, rule, now)
    return { key = key, now = now, count = call('ZCOUNT', key, format('(%.0f', now), '+inf') }
  end

  function M.fits(s, rule, cost, n)
    if cost == 0 then return n end
    if cost > 1 then return 0 end -- a request has one lease
    return max(0, min(n, rule.limit - s.count))
  end

  function M.charge(s, rule, units, lease)
    if units == 0 then return end
    call('ZREMRANGEBYSCORE', s.key, '-inf', format('%.0f', s.now))
    s.count = s.count + call('ZADD', s.key, format('%.0f', s.now + rule.window), lease)
  end

  -- A slot may come free at any moment, so there is no time to retry after.
  function M.answer(s, rule, cost)
    local last = call('ZRANGE', s.key, -1, -1, 'WITHSCORES')[2]
    return max(0, rule.limit - s.count), 0, last and max(0, last - s.now) or 0
  end

  function M.save(key, s, rule)
    local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
    call('PEXPIRE', key, ttl(last - s.now))
  end

  function M.refund(key, rule, units, at, now, lease)
    call('ZREM', key, lease)
  end

  return M
end
