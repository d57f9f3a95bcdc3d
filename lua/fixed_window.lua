-- fixed_window: a counter per window, windows aligned to the Unix epoch.
-- State: "start count". Rights received from another region can make the count negative.
-- A store that loses its data forgets what was spent, so a region's part admits nothing in
-- windows that began before the time in the last of KEYS, which is lost with the data.

--- load
local text, at, count, time, stepped = ask('GET', key), 0, 0, now, false
if text then
  if type(text) == 'string' then
    local first, second = match(text, '^(%d+) (%-?%d+)$')
    if first then at, count = first + 0, second + 0 end
  else
    readable = false
  end
end
if now < at then time, stepped = clock(now, at, rule.window) end
local start = time - time % rule.window
local closed, current = false, at == start
if at < start then
  count = 0
  if rule.escrow and readable and not returning then
    local open = call('GET', KEYS[#KEYS])
    if not open then
      open = format('%.0f', now + 10000000) -- another store's clock may have been ahead
      call('SET', KEYS[#KEYS], open)
    end
    if start < tonumber(open) then closed, count = true, 99999999999999 end -- the part may grow yet
  end
end
s.now, s.start, s.count, s.stepped, s.closed, s.current = time, start, count, stepped, closed, current

--- fits
local room = rule.limit - s.count
if (cost > 0 or rule.overdraft) and room < n * cost then n = room < cost and 0 or floor(room / cost) end

--- charge
local count = s.count + units
s.count = count < 100000000000000 and count or 99999999999999
if rule.overdraft then s.count = max(0, s.count) end

--- answer
local left, free = s.start + rule.window - s.now, rule.limit - s.count
if free > 0 then remaining = free end
if cost > free or free < 0 then retry = left end
if s.count ~= 0 then reset = left end

--- save
call('SET', key, time_text(rule, s.start) .. ' ' .. s.count, 'PX', ttl(rule, s.start + rule.window - s.now, slack))

--- refund
-- Only rights that a region's part received leave less than nothing. A part whose count is lost
-- must not get a new one, which would open its window.
if s.start == at - at % rule.window and (s.count > 0 or rule.escrow and s.current) then
  s.count = s.count - units
  if not rule.escrow then s.count = max(0, s.count) end
  changed = true
end

--- merge
if at == s.start then
  s.count = min(s.count + units, 99999999999999)
  changed = true
end
early = at > s.start
