-- sliding_window: the current window's count plus the previous one's, weighted by how much
-- of it the sliding window still covers. Weights are whole milliseconds, so sums are exact.
-- State: "start previous current".

--- load
local text, at, previous, current, time, stepped = ask('GET', key), 0, 0, 0, now, false
if text then
  if type(text) == 'string' then
    local first, second, third = match(text, '^(%d+) (%d+) (%d+)$')
    if first then at, previous, current = first + 0, second + 0, third + 0 end
  else
    readable = false
  end
end
local window = rule.window
if now < at then time, stepped = clock(now, at, window) end
local start = time - time % window
if at < start then
  previous = at + window >= start and current or 0
  current = 0
end
s.now, s.start, s.previous, s.current, s.stepped = time, start, previous, current, stepped
s.width = window / 1000
-- The previous window's count, weighted by the milliseconds it still covers.
s.faded = previous * (s.width - floor((time - start) / 1000))

--- fits
local room, each = (rule.limit - s.current) * s.width - s.faded, cost * s.width
if cost > 0 and room < n * each then n = room < each and 0 or floor(room / each) end

--- charge
-- The cap exceeds every valid limit, keeps the weighted sum below 2^53, and prints exactly.
s.current = min(s.current + units, floor(4503599627370496 / s.width), 99999999999999)

--- answer
local width, most = s.width, min(cost, rule.limit) -- a higher cost never passes
local free = rule.limit * width - (s.faded + s.current * width)
if free < most * width then
  local room = rule.limit - most
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
if free > 0 then remaining = floor(free / width) end

--- save
local last = s.current > 0 and 2 or 1
call('SET', key, time_text(rule, s.start) .. ' ' .. s.previous .. ' ' .. s.current,
  'PX', ttl(rule, s.start + last * rule.window - s.now, slack))

--- refund
local start = at - at % rule.window
if s.previous + s.current == 0 then
  changed = false
elseif start == s.start then
  s.current = max(0, s.current - units)
  changed = true
elseif start == s.start - rule.window then
  s.previous = max(0, s.previous - units)
  changed = true
end

--- merge
local most = min(floor(4503599627370496 / s.width), 99999999999999)
if at == s.start then
  s.current = min(s.current + units, most)
  changed = true
elseif at == s.start - rule.window then
  s.previous = min(s.previous + units, most)
  changed = true
end
early = at > s.start
