-- concurrency: a sorted set with one slot per request in flight. The score is when the slot
-- expires should its edge node die.

--- load
local count = returning and 0 or ask('ZCOUNT', key, format('(%.0f', now), '+inf')
s.now, s.count, s.stepped = now, count, false
if type(count) ~= 'number' then readable = false end

--- fits
if cost > 1 then -- a request needs one slot
  n = 0
elseif cost > 0 then
  n = max(0, min(n, rule.limit - s.count))
end

--- charge
-- Each call removes up to 200 expired slots.
trim(key, s.count, 200)
s.count = s.count + call('ZADD', key, format('%.0f', s.now + rule.window), s.slot)

--- answer
-- A slot may become free at any moment, so retry stays 0.
local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
remaining = max(0, rule.limit - s.count)
if last then reset = max(0, last - s.now) end

--- save
local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
call('PEXPIRE', key, ttl(rule, last - s.now, slack))

--- refund
ask('ZREM', key, s.slot)
