-- Shared by every script. embed.go joins the files of this folder: it puts the parts of the
-- algorithms that a script serves where a line such as `--- load` in take.lua or return.lua
-- names them. An algorithm has these parts, over a state `s`:
--   functions   what the others call
--   load        fills s with the state of `key` as it is at `now`; readable = false if the
--               key holds what no algorithm has written
--   fits        n = how many of n requests of that cost pass, one after another
--   charge      adds units to s, up to what the rule can hold; units of a lease are spent
--               at any time until now + lease
--   answer      remaining, retry, reset = what is left, and microseconds until cost passes
--               and until all is free
--   save        writes s with a time to live; also if s.stepped, see clock
--   refund      takes back units that were charged at `at`; changed = true if s must be saved
--   merge       adds units that another region let pass in its window that began at `at`,
--               beyond the limit if need be; changed as above; early = true if the window
--               has not begun here. Only algorithms of global limits have it
-- load only reads: a peek leaves no trace. It sets every field of s that the others read,
-- because s is used again for the next request of the call.
--
-- A script spends most of its time on what it creates at each call and check: functions,
-- with a cell for each variable outside that they use; tables, strings, and their garbage.
-- Hence parts instead of functions, functions that use globals, tables that are written
-- with all their fields and used again, and texts that a rule remembers.
--
-- Times are whole microseconds, below 2^53, so a Lua number holds them exactly.
-- Print them with %.0f: concatenation and tostring show 14 digits.

local KEYS, ARGV, call, ask = KEYS, ARGV, redis.call, redis.pcall
local format, match, byte = string.format, string.match, string.byte
local floor, ceil, max, min, abs = math.floor, math.ceil, math.max, math.min, math.abs

-- The time of this decision. In production ARGV[1] is '' and the time is the server's, the
-- only clock that all edge nodes share. A test clock is not the server's, so keys must not
-- expire by the latter.
local now, slack = ARGV[1], 0
if now == '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now, slack = tonumber(now), 3600000
end

-- clock returns the time that applies to a key last written at `at`, after now. If that is
-- by at most ten seconds, and no more than the window, time stands still for the key until
-- the clock has caught up. A clock further behind was set back: its time applies, and the
-- state is treated as current, as if no time had passed. That must be saved even if
-- nothing is charged, or the state would never age; hence the second result.
local function clock(now, at, window)
  if at - now <= math.min(window, 10000000) then return at, false end
  return now, true
end

-- ttl returns a time to live as text. Most keys of a rule have the same one.
local function ttl(rule, us, slack)
  if us ~= rule.ttl_of then
    rule.ttl_of, rule.ttl = us, string.format('%.0f', math.max(1, math.ceil(us / 1000)) + slack)
  end
  return rule.ttl
end

-- time_text returns a time as text. Most keys of a rule have the same one.
local function time_text(rule, at)
  if at ~= rule.time then rule.time, rule.time_text = at, string.format('%.0f', at) end
  return rule.time_text
end

-- rule_of reads what Go wrote (Limit.Encoded): a rule travels as data, so that changing one
-- never changes the script.
local function rule_of(text)
  local tag, count_denied, shadow, debt, limit, window, capacity, interval, drain, unit, slowest, lease, more =
    struct.unpack('<c2BBBdddddddd', text)
  local since, have, young, old = 0, 0, 0, 0
  if more <= #text then since, have, young, old = struct.unpack('<dddd', text, more) end
  return {
    tag = tag,
    limit = limit,
    window = window,
    capacity = capacity, -- of a bucket; of a log, its entries up to which it is saved as a whole
    interval = interval,
    drain = drain,
    unit = unit,
    count_denied = count_denied == 1,
    shadow = shadow == 1,
    debt = debt == 1, -- regions share the limit, so a bucket may hold more than its capacity
    escrow = debt == 2, -- a region's part of a limit
    slowest = slowest,
    lease = lease,
    since = since, -- of a region's part of a bucket; see escrow_bucket.lua
    have = have,
    young = young,
    old = old,
    ttl_of = '',
    ttl = '',
    time = '',
    time_text = '',
    unit_text = '',
  }
end

--- functions
