-- rolling_window, storage sorted_set: a member per accepted request, scored with its
-- time in microseconds.
algorithms.rs = function()
  local M = {}
  local chunk = 500 -- members in one ZADD: Lua's stack has no room for many thousands

  local function edge(s, rule) return format('%.0f', s.now - rule.window) end

  -- score returns the time of the member at that rank, or nil.
  local function score(s, rank)
    return tonumber(call('ZRANGE', s.key, rank, rank, 'WITHSCORES')[2])
  end

  function M.load(key, rule, now)
    local s = { key = key, now = now }
    s.count = call('ZCOUNT', key, '(' .. edge(s, rule), '+inf')
    return s
  end

  function M.fits(s, rule, cost, n)
    if rule.interval > 0 then
      local newest = score(s, -1)
      if newest and s.now - newest < rule.interval then return 0 end
      if cost > 0 then n = min(n, 1) end
    end
    if cost == 0 then return n end
    return max(0, min(n, floor((rule.limit - s.count) / cost)))
  end

  function M.charge(s, rule, units)
    units = min(units, rule.limit)
    call('ZREMRANGEBYSCORE', s.key, '-inf', edge(s, rule))
    local newest = score(s, -1)
    local stamp = format('%.0f', max(s.now, newest or 0))
    -- Requests of one microsecond differ in their suffix.
    local suffix = newest and call('ZCOUNT', s.key, stamp, stamp) or 0
    local missing = units
    while missing > 0 do
      local members = {}
      for _ = 1, min(missing, chunk) do
        members[#members + 1] = stamp
        members[#members + 1] = suffix == 0 and stamp or stamp .. ':' .. suffix
        suffix = suffix + 1
      end
      -- A suffix may be taken, where others before it were returned: NX adds the rest.
      missing = missing - call('ZADD', s.key, 'NX', unpack(members))
    end
    -- A denied attempt that counts pushes out the oldest members, but a log that another
    -- tier filled further is not cut down to this one's limit.
    local most = max(s.count, rule.limit)
    s.count = s.count + units
    if s.count > most then
      call('ZREMRANGEBYRANK', s.key, 0, s.count - most - 1)
      s.count = most
    end
  end

  function M.answer(s, rule, cost)
    local retry, reset = 0, 0
    local newest = score(s, -1)
    if s.count > 0 then reset = newest + rule.window - s.now end
    local over = s.count + min(cost, rule.limit) - rule.limit -- more never passes
    if over > 0 and cost > 0 then
      -- Ranks from the end: the log may still hold entries that left the window.
      retry = score(s, over - 1 - s.count) + rule.window - s.now
    end
    if newest then retry = max(retry, newest + rule.interval - s.now) end
    return max(0, rule.limit - s.count), retry, reset
  end

  function M.save(key, s, rule)
    call('PEXPIRE', key, ttl(score(s, -1) + rule.window - s.now))
  end

  function M.refund(key, rule, units, at, now)
    local stamp = format('%.0f', at)
    local first, charged = call('ZCOUNT', key, '-inf', '(' .. stamp), call('ZCOUNT', key, stamp, stamp)
    if charged > 0 then call('ZREMRANGEBYRANK', key, first, first + min(units, charged) - 1) end
  end

  return M
end
