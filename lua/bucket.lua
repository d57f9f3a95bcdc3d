-- token_bucket and leaky_bucket: requests raise a level and time drains it. One request
-- adds `unit` units and each microsecond drains `drain` units; drain/unit is limit/window
-- in lowest terms. All numbers are integers, so nothing is rounded. The algorithms differ
-- in what `capacity` means:
--   token_bucket  a bucket of `burst` tokens, refilled at limit/window. The level counts
--                 the missing tokens, and the capacity is burst.
--   leaky_bucket  GCRA. A request is due at the theoretical arrival time (TAT) of a steady
--                 flow and may arrive up to `burst` requests early. The level, in time, is
--                 TAT - now, and the capacity is burst + 1: the tolerance and the request
--                 that is due. Source: ITU-T I.371, virtual scheduling and continuous-state
--                 leaky bucket. The TAT alone would suffice as state, but would hide a
--                 clock that ran backwards.
-- State: "time level unit"; unit lets a changed rule convert the level. A leased rule adds
-- " granted before": the units granted in the lease period of `time` (periods count from
-- the epoch) and in the period before it.
--
-- A key may hold more than the current rule allows, because the rule shrank or a client of
-- a larger tier filled it. Such a key is judged as if it had been exactly full when last
-- charged, so no client waits longer than an empty bucket takes to refill. It keeps its
-- true level, or a request under the small limit would erase charges under the large one.

--- load
local text, at, level, time, stepped, granted, before = ask('GET', key), 0, 0, now, false, 0, 0
if text then
  if type(text) == 'string' then
    local first, second, unit, third, fourth = match(text, '^(%d+) (%d+) (%d+) ?(%d*) ?(%d*)$')
    if first then
      at, level = first + 0, second + 0
      if unit + 0 ~= rule.unit then level = min(ceil(level * rule.unit / unit), 4503599627370496) end
      if third ~= '' then granted, before = third + 0, fourth + 0 end
    end
  else
    readable = false
  end
end
if now < at then time, stepped = clock(now, at, rule.window) end
local full, drained = rule.capacity * rule.unit, 0
if time > at then drained = (time - at) * rule.drain end
local judged = (level < full or rule.debt) and level or full
s.now, s.stepped, s.full = time, stepped, full
s.level = level > drained and level - drained or 0
s.judged = judged > drained and judged - drained or 0
if rule.lease > 0 then
  if granted + before > 0 and time > at then
    s.level = pass(rule, level, at, time, granted, before)
    s.judged = pass(rule, judged, at, time, granted, before)
    local passed = floor(time / rule.lease) - floor(at / rule.lease)
    if passed > 0 then granted, before = 0, passed == 1 and granted or 0 end
  end
  s.granted, s.before = granted, before
end

--- fits
local room, each = s.full - s.judged, cost * rule.unit
if (cost > 0 or rule.overdraft) and room < n * each then n = room < each and 0 or floor(room / each) end

--- charge
local added = min(units, rule.capacity) * rule.unit
if rule.overdraft then -- a debt drains within 31 days
  s.level = min(max(0, s.level + units * rule.unit), s.full + rule.drain * 2678400000000, 4503599627370496)
  s.judged = s.level
elseif s.judged + added <= s.full then
  s.level, s.judged = s.level + added, s.judged + added
else -- a counted denial fills the bucket but never overfills it
  s.level, s.judged = max(s.level, min(s.level + added, s.full)), max(s.judged, s.full)
end

if lease > 0 then s.granted = s.granted + units end

--- answer
local free = s.full - s.judged
local short = (rule.overdraft and max(0, min(cost, rule.capacity)) or cost) * rule.unit - free
reset = ceil(s.level / rule.drain)
if free > 0 then remaining = floor(free / rule.unit) end
if short > 0 then retry = ceil(short / rule.drain) end
if rule.lease > 0 and s.granted + s.before > 0 and reset > 0 then reset = reset + 2 * rule.lease end

--- save
-- Keep the state until it has drained for the slowest tier that shares it.
local lives = ceil(s.level / rule.drain)
if rule.slowest < rule.limit then lives = min(lives * rule.limit / rule.slowest, 4503599627370496) end
if rule.unit_text == '' then rule.unit_text = format(' %.0f', rule.unit) end
local level = s.level < 100000000000000 and s.level or format('%.0f', s.level)
local last = rule.unit_text
if rule.lease > 0 then
  last, lives = last .. format(' %.0f %.0f', s.granted, s.before), lives + 2 * rule.lease
end
call('SET', key, time_text(rule, s.now) .. ' ' .. level .. last, 'PX', ttl(rule, lives, slack))

--- refund
-- Without the charge the level might have reached 0 sooner, so a refund leaves out what
-- drained since; returning it could admit too many requests. For leased units, `at` is the
-- end of the lease: until then the level did not drain below them.
local back = units * rule.unit - max(0, s.now - at) * rule.drain
if back > 0 and s.level > 0 then
  s.level = max(0, s.level - back)
  changed = true
end

--- merge
s.level = min(s.level + units * rule.unit, 4503599627370496)
changed = true
