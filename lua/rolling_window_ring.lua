-- rolling_window, storage ring: the times of the accepted requests, oldest first, 4 bytes
-- each, in one string. A time is in milliseconds modulo 2^32, rounded up, so an entry
-- never leaves the window early; windows are at most 7 days, so an age is never
-- ambiguous. (A clock that is set back by more than 12 days therefore empties the log.)
algorithms.rr = function()
  local M = {}
  local wrap, future = 4294967296, 3221225472

  -- age returns the age of entry i (0 is the oldest) in milliseconds; negative if it was
  -- stamped later than now (rounding, or a clock that ran backwards).
  local function age(s, i)
    local a = (s.now_ms - unpack_int('>I4', s.log, i * 4 + 1)) % wrap
    if a > future then a = a - wrap end
    return a
  end

  -- before returns how many entries are at least that old.
  local function before(s, limit)
    local low, high = 0, s.size
    while low < high do
      local middle = floor((low + high) / 2)
      if age(s, middle) < limit then high = middle else low = middle + 1 end
    end
    return low
  end

  local function read(key, now)
    local log = call('GET', key) or ''
    return { now = now, now_ms = floor(now / 1000), log = log, first = 0, size = floor(#log / 4) }
  end

  function M.load(key, rule, now)
    local s = read(key, now)
    if s.size == 0 then return s end
    local newest = s.now_ms - age(s, s.size - 1)
    if newest > s.now_ms then
      local _
      _, s.stepped = clock(now, newest * 1000, rule.window)
      if s.stepped then -- later entries become current
        local stamp = ceil(now / 1000)
        local kept = before(s, s.now_ms - stamp)
        s.log = sub(s.log, 1, kept * 4) .. rep(pack('>I4', stamp % wrap), s.size - kept)
      end
    end
    local window = rule.window / 1000
    if age(s, 0) >= window then s.first = before(s, window) end
    return s
  end

  function M.fits(s, rule, cost, n)
    if rule.interval > 0 then
      if s.size > 0 and age(s, s.size - 1) < rule.interval / 1000 then return 0 end
      if cost > 0 then n = min(n, 1) end
    end
    if cost == 0 then return n end
    return max(0, min(n, floor((rule.limit - (s.size - s.first)) / cost)))
  end

  function M.charge(s, rule, units)
    units = min(units, rule.limit)
    local stamp = ceil(s.now / 1000)
    if s.size > 0 then stamp = max(stamp, s.now_ms - age(s, s.size - 1)) end
    -- A denied attempt that counts pushes out the oldest entries, but a log that a larger
    -- tier filled is not cut down to this tier's limit.
    local live = s.size - s.first
    local keep = s.first + max(0, live + units - max(live, rule.limit))
    s.log = sub(s.log, keep * 4 + 1, s.size * 4) .. rep(pack('>I4', stamp % wrap), units)
    s.first, s.size = 0, s.size - keep + units
  end

  function M.answer(s, rule, cost)
    local count = s.size - s.first
    if s.size == 0 then return rule.limit, 0, 0 end
    local part, retry, reset = s.now % 1000, 0, 0
    local newest = age(s, s.size - 1)
    if count > 0 then reset = rule.window - newest * 1000 - part end
    local over = count + min(cost, rule.limit) - rule.limit -- a higher cost never passes
    if over > 0 and cost > 0 then retry = rule.window - age(s, s.first + over - 1) * 1000 - part end
    retry = max(retry, rule.interval - newest * 1000 - part)
    return max(0, rule.limit - count), retry, reset
  end

  function M.save(key, s, rule)
    call('SET', key, s.log, 'PX', ttl(rule.window - age(s, s.size - 1) * 1000))
  end

  function M.refund(key, rule, units, at, now)
    local s = read(key, now)
    local charged = s.now_ms - ceil(at / 1000) -- its age; entries of the same age are adjacent
    local last = s.size - 1
    while last >= 0 and age(s, last) < charged do last = last - 1 end
    local rest = last
    while rest >= 0 and last - rest < units and age(s, rest) == charged do rest = rest - 1 end
    if rest == last then return end
    s.log = sub(s.log, 1, rest * 4 + 4) .. sub(s.log, last * 4 + 5)
    s.size = s.size - (last - rest)
    if s.size > 0 then M.save(key, s, rule) else call('UNLINK', key) end
  end

  return M
end
