-- The beginning of every script. embed.go replaces each line such as `--- load` in a driver
-- (take.lua, return.lua, …) with that part of the algorithms that the script serves. An
-- algorithm has these parts, which work on a state `s`:
--   functions   what the other parts call
--   load        reads the state of `key` at `now` into s; readable = false if the key holds
--               data that no algorithm here writes (foreign data)
--   fits        n = how many of n requests of that cost pass, one after another
--   charge      adds units to s, at most what the rule can hold; leased units may be spent
--               at any time until now + lease
--   answer      sets remaining, and the microseconds until cost passes (retry) and until
--               everything is free (reset)
--   save        writes s with a TTL; also if s.stepped, see clock
--   refund      takes back units charged at `at`; changed = true if s must be saved
--   merge       adds units that another region admitted in its window that began at `at`,
--               even beyond the limit; changed as above; early = true if the window has not
--               begun here. Only algorithms of global limits have it
-- load only reads, so a peek leaves no trace. It sets every field of s that the other parts
-- read, because the next request of the call reuses s.
--
-- A script spends most of its time creating objects: functions (with a cell for each outer
-- variable that they use), tables, strings, and their garbage. That is why the algorithms
-- are inlined parts, functions use globals, tables are created with all fields and reused,
-- and rules cache the texts they print.
--
-- Times are integer microseconds below 2^53, which a Lua number holds exactly. Print them
-- with %.0f: concatenation and tostring show 14 digits.

local KEYS, ARGV, call, ask = KEYS, ARGV, redis.call, redis.pcall
local format, match, byte = string.format, string.match, string.byte
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- The time of this decision. In production ARGV[1] is '' and the server's clock, the only
-- one that all edge nodes share, applies. Under a test clock keys get an hour of slack,
-- because they still expire by the server's.
local now, slack = ARGV[1], 0
if now == '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now, slack = tonumber(now), 3600000
end

-- clock returns the time that applies to a key last written at `at`, which is after now. If
-- the clock is behind by at most ten seconds and one window, the key's time stands still
-- until the clock has caught up. A clock further behind was set back: its time applies, and
-- the state counts as written now. Then the second result is true, and the caller must save
-- the state even if it charges nothing, or the state would never age.
local function clock(now, at, window)
  if at - now <= math.min(window, 10000000) then return at, false end
  return now, true
end

-- ttl returns a TTL as text. Most keys of a rule share one, so the rule caches it.
local function ttl(rule, us, slack)
  if us ~= rule.ttl_of then
    rule.ttl_of, rule.ttl = us, string.format('%.0f', math.max(1, math.ceil(us / 1000)) + slack)
  end
  return rule.ttl
end

-- time_text returns a time as text, cached like a TTL.
local function time_text(rule, at)
  if at ~= rule.time then rule.time, rule.time_text = at, string.format('%.0f', at) end
  return rule.time_text
end

-- unreadable says why a key could not be read: -1 if it holds foreign data, -2 if another
-- master has it (see several_slots.lua).
local function unreadable(key)
  return type(ask('EXISTS', key)) == 'table' and -2 or -1
end

-- rule_of decodes a rule (Limit.Encoded in Go). Rules travel as data, so changing one never
-- changes the script.
local function rule_of(text)
  local tag, count_denied, shadow, debt, limit, window, capacity, interval, drain, unit, slowest, lease =
    struct.unpack('<c2BBBdddddddd', text)
  return {
    tag = tag,
    limit = limit,
    window = window,
    capacity = capacity, -- of a bucket; for a log, how many entries are rewritten as a whole
    interval = interval,
    drain = drain,
    unit = unit,
    count_denied = count_denied == 1,
    shadow = shadow == 1,
    debt = debt == 1 or debt == 3, -- regions share the limit, or overdraft: a bucket may hold more than its capacity
    escrow = debt == 2, -- a region's part of a limit
    overdraft = debt == 3, -- charges every request whole; negative costs give back
    slowest = slowest,
    lease = lease,
    ttl_of = '',
    ttl = '',
    time = '',
    time_text = '',
    unit_text = '',
  }
end

--- functions
