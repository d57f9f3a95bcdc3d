-- rolling_window, storage sorted_set: one member per accepted request, scored with its
-- time in microseconds.
algorithms.rs = function()
  local M = {}
  local most = 200 -- members that one call adds (limiter.MaxEntries), and old ones that it removes

  local function edge(s, rule) return format('%.0f', s.now - rule.window) end

  -- score returns the time of the member at that rank, or nil.
  local function score(s, rank)
    return tonumber(call('ZRANGE', s.key, rank, rank, 'WITHSCORES')[2])
  end

  function M.load(key, rule, now)
    local s = { key = key, now = now, count = 0 }
    s.newest = score(s, -1)
    if not s.newest then return s end
    s.count = call('ZCOUNT', key, '(' .. edge(s, rule), '+inf')
    local _
    _, s.stepped = clock(now, s.newest, rule.window)
    if s.stepped then s.newest = now end -- later members become current
    return s
  end

  function M.fits(s, rule, cost, n)
    if rule.interval > 0 then
      if s.newest and s.now - s.newest < rule.interval then return 0 end
      if cost > 0 then n = min(n, 1) end
    end
    if cost == 0 then return n end
    if cost > most then return 0 end
    return max(0, min(n, floor((rule.limit - s.count) / cost)))
  end

  -- Requests in the same microsecond differ in their suffix. A suffix may be taken by a
  -- member of an earlier release, or by one from a clock that ran backwards: NX adds the
  -- rest.
  local function add(s, units)
    local stamp = format('%.0f', s.newest)
    local suffix = call('ZCOUNT', s.key, stamp, stamp)
    while units > 0 do
      local members = {}
      for _ = 1, units do
        members[#members + 1] = stamp
        members[#members + 1] = suffix == 0 and stamp or format('%s:%06d', stamp, suffix)
        suffix = suffix + 1
      end
      units = units - call('ZADD', s.key, 'NX', unpack(members))
    end
  end

  function M.charge(s, rule, units)
    units = min(units, rule.limit, most)
    local old = trim(s.key, s.count, units + most)
    s.newest = max(s.now, s.newest or 0)
    add(s, units)
    -- A denied attempt that counts pushes out the oldest members, but a log that a larger
    -- tier filled is not cut down to this tier's limit.
    local full = max(s.count, rule.limit)
    s.count = s.count + units
    if s.count > full then
      call('ZREMRANGEBYRANK', s.key, old, old + s.count - full - 1)
      s.count = full
    end
  end

  function M.answer(s, rule, cost)
    local retry, reset = 0, 0
    if s.count > 0 then reset = s.newest + rule.window - s.now end
    local over = s.count + min(cost, rule.limit) - rule.limit -- a higher cost never passes
    if over > 0 and cost > 0 then
      -- Ranks count from the end: the log may still hold entries that left the window.
      local oldest = score(s, over - 1 - s.count)
      if s.stepped then oldest = min(oldest, s.now) end
      retry = oldest + rule.window - s.now
    end
    if s.newest then retry = max(retry, s.newest + rule.interval - s.now) end
    return max(0, rule.limit - s.count), retry, reset
  end

  -- Members later than now become current, some at each call.
  local function settle(s)
    local members, stamp = {}, format('%.0f', s.now)
    for i, member in ipairs(call('ZRANGEBYSCORE', s.key, '(' .. stamp, '+inf', 'LIMIT', 0, most)) do
      members[2 * i - 1], members[2 * i] = stamp, member
    end
    if #members > 0 then call('ZADD', s.key, 'XX', unpack(members)) end
  end

  function M.save(key, s, rule)
    if s.stepped then settle(s) end
    call('PEXPIRE', key, ttl(s.newest + rule.window - s.now))
  end

  -- The last ones of a microsecond go, so that the other suffixes have no gap.
  function M.refund(key, rule, units, at, now)
    local stamp = format('%.0f', at)
    local charged = call('ZCOUNT', key, stamp, stamp)
    local after = call('ZCOUNT', key, '-inf', stamp)
    if charged > 0 then call('ZREMRANGEBYRANK', key, after - min(units, charged), after - 1) end
  end

  return M
end
