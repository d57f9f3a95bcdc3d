-- rolling_window, storage sorted_set: one member per admitted request, scored with its time
-- in microseconds, or with the end of its lease. One call adds at most 200 members
-- (limiter.MaxEntries) and removes about as many old ones. If expired members remain, the
-- member 'left', scored with the end of what has expired, keeps them out of a longer window.

--- functions
-- score returns the time of the member at a rank, or nil.
local function score(key, rank)
  return tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
end

-- expired returns the time up to which members have expired.
local function expired(s, key, window)
  local left = tonumber(redis.call('ZSCORE', key, 'left') or 0)
  if s.stepped and left > s.now then left = 0 end
  return math.max(s.now - window, left)
end

--- load
local last = ask('ZRANGE', key, -1, -1, 'WITHSCORES')
s.now, s.count, s.newest, s.stepped = now, 0, nil, false
if last.err then
  readable = false
elseif last[2] then
  s.newest = tonumber(last[2])
  if now < s.newest then
    local _
    _, s.stepped = clock(now, s.newest, rule.window)
    if s.stepped then s.newest = now end -- later members become current
  end
  s.count = call('ZCOUNT', key, format('(%.0f', expired(s, key, rule.window)), '+inf')
end

--- fits
if rule.interval > 0 then
  if s.newest and s.now - s.newest < rule.interval then n = 0 end
  if cost > 0 then n = min(n, 1) end
end
if cost > 200 then
  n = 0
elseif cost > 0 then
  n = max(0, min(n, floor((rule.limit - s.count) / cost)))
end

--- charge
local added = min(units, rule.limit, 200)
local old = trim(key, s.count, added + 200)
if old > 0 then -- among the old ones, it is removed last
  old = old + call('ZADD', key, format('%.0f', expired(s, key, rule.window)), 'left')
end
s.newest = max(s.now + lease, s.newest or 0)
-- Members of the same microsecond differ in their suffix. A clock that ran backwards may have
-- used a suffix already: NX adds the others.
local stamp, missing = format('%.0f', s.newest), added
local suffix = call('ZCOUNT', key, stamp, stamp)
while missing > 0 do
  local members = {}
  for _ = 1, missing do
    members[#members + 1] = stamp
    members[#members + 1] = suffix == 0 and stamp or format('%s:%06d', stamp, suffix)
    suffix = suffix + 1
  end
  missing = missing - call('ZADD', key, 'NX', unpack(members))
end
-- A counted denial pushes out the oldest members, but never cuts a log that a larger tier
-- filled down to this tier's limit.
local full = max(s.count, rule.limit)
s.count = s.count + added
if s.count > full then
  call('ZREMRANGEBYRANK', key, old, old + s.count - full - 1)
  s.count = full
end

--- answer
if s.count > 0 then reset = s.newest + rule.window - s.now end
local over = s.count + min(cost, rule.limit) - rule.limit -- a higher cost never passes
if over > 0 and cost > 0 then
  -- Count ranks from the end, because expired members may remain at the beginning.
  local oldest = score(key, over - 1 - s.count)
  if s.stepped then oldest = min(oldest, s.now) end
  retry = oldest + rule.window - s.now
end
if s.newest then retry = max(retry, s.newest + rule.interval - s.now) end
remaining = max(0, rule.limit - s.count)

--- save
if s.stepped then -- members later than now become current, some at each call
  if tonumber(call('ZSCORE', key, 'left') or 0) > s.now then call('ZREM', key, 'left') end
  local members, stamp = {}, format('%.0f', s.now)
  for i, member in ipairs(call('ZRANGEBYSCORE', key, '(' .. stamp, '+inf', 'LIMIT', 0, 200)) do
    members[2 * i - 1], members[2 * i] = stamp, member
  end
  if #members > 0 then call('ZADD', key, 'XX', unpack(members)) end
end
call('PEXPIRE', key, ttl(rule, s.newest + rule.window - s.now, slack))

--- refund
-- Remove the last members of a microsecond, so that the remaining suffixes have no gap.
local stamp = format('%.0f', at)
local charged = call('ZCOUNT', key, stamp, stamp)
local after = call('ZCOUNT', key, '-inf', stamp)
if charged > 0 then call('ZREMRANGEBYRANK', key, after - min(units, charged), after - 1) end
