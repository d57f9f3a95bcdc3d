-- rolling_window, storage ring: the times of the admitted requests, oldest
-- first, 4 bytes each, in one string. Times are milliseconds modulo 2^32, rounded up so that
-- no entry leaves the window early. Windows last at most 7 days, so an age is unambiguous.
-- (A clock set back by more than 12 days therefore empties the log.) Leased units carry the
-- end of their lease, so each stays for a full window after it was spent.
--
-- The string is a log, or a ring if a log would exceed `rule.capacity` entries.
--   log   the entries. Every change rewrites all of them, which is cheap while they are few.
--   ring  a header of six 4-byte numbers, then room for `room` entries, of which `size` are
--         used from `head` on, wrapping around the end. A change writes only the header and
--         the new entries, whatever the length. The first two numbers are the newest entry's
--         time, plain and with its highest bit inverted; no two entries of a log are that far
--         apart, which tells a ring from a log. The last number is when the key expires.
-- A full ring doubles, and moves only the entries that had wrapped, because long Lua strings
-- are slow to create. A ring less than a quarter full is rewritten.

--- functions
-- age returns the age of entry i (0 is the oldest) in milliseconds, negative for an entry
-- later than now (rounding, or a clock that ran backwards). s.log holds the entries from
-- slot s.from on: all of a log, or some of a ring. s.fresh holds a ring's last entries, which
-- save writes.
local function age(s, i)
  local log = s.log
  if s.room then
    local kept = s.size - #s.fresh / 4
    if i >= kept then
      log, i = s.fresh, i - kept
    else
      local slot = (s.head + i) % s.room
      i = slot - s.from
      if i < 0 or i * 4 >= #log then
        local at = 24 + slot * 4
        log = redis.call('GETRANGE', s.key, at, math.min(at + 64, 24 + s.room * 4) - 1)
        s.log, s.from, i = log, slot, 0
      end
    end
  end
  local a, b, c, d = string.byte(log, i * 4 + 1, i * 4 + 4)
  local since = (s.now_ms - (((a * 256 + b) * 256 + c) * 256 + d)) % 4294967296
  return since > 3221225472 and since - 4294967296 or since
end

-- before returns how many entries are at least `limit` milliseconds old.
local function before(s, limit)
  local low, high = 0, s.size
  if high > 16 and age(s, 15) < limit then high = 15 end -- few leave at a time
  while low < high do
    local middle = math.floor((low + high) / 2)
    if age(s, middle) < limit then high = middle else low = middle + 1 end
  end
  return low
end

-- stamps returns n entries of one time.
local function stamps(ms, n)
  return string.rep(struct.pack('>I4', ms % 4294967296), n)
end

-- entries returns the entries of a ring from `from` to just before `to`, as its key has them.
local function entries(s, from, to)
  local at, over = 24 + (s.head + from) % s.room * 4, 24 + s.room * 4
  local last = at + (to - from) * 4
  local log = redis.call('GETRANGE', s.key, at, math.min(last, over) - 1)
  return last > over and log .. redis.call('GETRANGE', s.key, 24, 24 + last - over - 1) or log
end

-- unroll turns a ring back into a log, which save then rewrites.
local function unroll(s)
  s.log, s.room = entries(s, 0, s.size - #s.fresh / 4) .. s.fresh, nil
end

local function head_of(s)
  local newest = (s.now_ms - s.newest) % 4294967296
  return struct.pack('>I4I4I4I4I4I4', newest, (newest + 2147483648) % 4294967296, s.head, s.size, s.room, s.expires)
end

--- load
local most = 24 + rule.capacity * 4
local log = (rule.limit > rule.capacity and ask('GETRANGE', key, 0, most - 1) or ask('GET', key)) or ''
if type(log) ~= 'string' then readable, log = false, '' end
s.key, s.now, s.now_ms, s.first, s.fresh, s.stepped = key, now, floor(now / 1000), 0, '', false
s.log, s.size, s.newest, s.room = log, 0, 0, nil
local a, b, c, d, e, f, g, h = byte(log, 1, 8)
if h and f == b and g == c and h == d and (a - e == 128 or e - a == 128) then
  local _
  _, _, s.head, s.size, s.room, s.expires = struct.unpack('>I4I4I4I4I4I4', log)
  s.from = -6 -- the header lies before the first slot
  s.newest = (s.now_ms - (((a * 256 + b) * 256 + c) * 256 + d)) % 4294967296
  if s.newest > 3221225472 then s.newest = s.newest - 4294967296 end
elseif #log > 0 then
  if rule.limit > rule.capacity and #log == most then log = call('GET', key) end
  if #log % 4 > 0 then log = string.sub(log, 1, #log - #log % 4) end
  s.log, s.size = log, #log / 4
  if s.size > 0 then s.newest = age(s, s.size - 1) end
end
if s.size > 0 then
  if s.newest < 0 and not returning then
    local _
    _, s.stepped = clock(now, (s.now_ms - s.newest) * 1000, rule.window)
    if s.stepped then -- later entries become current
      local stamp = ceil(now / 1000)
      local kept = before(s, s.now_ms - stamp)
      if s.room then
        s.fresh = stamps(stamp, s.size - kept)
      else
        s.log = string.sub(s.log, 1, kept * 4) .. stamps(stamp, s.size - kept)
      end
      s.newest = s.now_ms - stamp
    end
  end
  local window = rule.window / 1000
  if s.newest >= window then
    s.first = s.size
  elseif age(s, 0) >= window then
    s.first = before(s, window)
  end
end

--- fits
if rule.interval > 0 then
  if s.size > 0 and s.newest < rule.interval / 1000 then n = 0 end
  if cost > 0 and n > 1 then n = 1 end
end
local room = rule.limit - (s.size - s.first)
if cost > 0 and room < n * cost then n = room < cost and 0 or floor(room / cost) end

--- charge
local added, stamp = min(units, rule.limit), ceil((s.now + lease) / 1000)
if s.size > 0 then stamp = max(stamp, s.now_ms - s.newest) end
-- A counted denial pushes out the oldest entries, but never cuts a log that a larger tier
-- filled down to this tier's limit.
local live = s.size - s.first
local gone = s.first + max(0, live + added - max(live, rule.limit))
local size = s.size - gone + added
if s.room and (size * 4 < s.room or size <= rule.capacity) then unroll(s) end
if not s.room then
  s.log = (gone > 0 and string.sub(s.log, gone * 4 + 1) or s.log) .. stamps(stamp, added)
else
  if size > s.room then
    local kept, straight = s.size - #s.fresh / 4, s.room - s.head
    if kept > straight then s.fresh = entries(s, straight, kept) .. s.fresh end
    s.room = min(2 * size, max(rule.limit, size))
  end
  s.head, s.fresh = (s.head + gone) % s.room, s.fresh .. stamps(stamp, added)
  if #s.fresh > size * 4 then s.fresh = string.sub(s.fresh, -size * 4) end
end
s.first, s.size, s.newest = 0, size, s.now_ms - stamp

--- answer
remaining = rule.limit
if s.size > 0 then
  local count, part = s.size - s.first, s.now % 1000
  if count > 0 then reset = rule.window - s.newest * 1000 - part end
  local over = count + min(cost, rule.limit) - rule.limit -- a higher cost never passes
  if over > 0 and cost > 0 then retry = rule.window - age(s, s.first + over - 1) * 1000 - part end
  retry = max(retry, rule.interval - s.newest * 1000 - part)
  remaining = count < rule.limit and rule.limit - count or 0
end

--- save
local life = rule.window - s.newest * 1000
local ends = s.now_ms + ceil(life / 1000)
if s.size == 0 then
  call('UNLINK', key)
elseif s.room then
  -- Renew the TTL only once it is half a second short.
  if (s.expires - ends) % 4294967296 > 500 then
    s.expires = (ends + 500) % 4294967296
    call('PEXPIRE', key, ttl(rule, life + 500000, slack))
  end
  local slot = (s.head + s.size - #s.fresh / 4) % s.room
  local here = (s.room - slot) * 4
  call('SETRANGE', key, 24 + slot * 4, #s.fresh > here and string.sub(s.fresh, 1, here) or s.fresh)
  if #s.fresh > here then call('SETRANGE', key, 24, string.sub(s.fresh, here + 1)) end
  call('SETRANGE', key, 0, head_of(s))
elseif s.size <= rule.capacity then
  call('SET', key, s.log, 'PX', ttl(rule, life, slack))
else
  s.head, s.from, s.fresh, s.expires = 0, 0, '', (ends + 500) % 4294967296
  s.room = min(2 * s.size, max(rule.limit, s.size))
  call('SET', key, head_of(s) .. s.log, 'PX', ttl(rule, life + 500000, slack))
end

--- refund
local charged = s.now_ms - ceil(at / 1000) -- its age; entries of the same age are adjacent
local last = before(s, charged)
local rest = max(before(s, charged + 1), last - units)
if rest < last then
  local size = s.size - (last - rest)
  if s.room and (size * 4 < s.room or size <= rule.capacity) then unroll(s) end
  if s.room then
    s.fresh = entries(s, last, s.size)
  else
    s.log = string.sub(s.log, 1, rest * 4) .. string.sub(s.log, last * 4 + 1)
  end
  s.size = size
  if s.size > 0 then s.newest = age(s, s.size - 1) end
  changed = true
end
