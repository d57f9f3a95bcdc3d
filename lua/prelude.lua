-- Shared by every algorithm. The files of this folder are joined into one script (see
-- embed.go), so a `local` here is visible in all that follow.
--
-- An algorithm is a table of five functions over a state `s`:
--   load(key, rule, now)        -> s, the state as it is at `now`
--   fits(s, rule, cost, n)      -> how many of n requests of that cost pass, one after another
--   charge(s, rule, units, slot)   adds units to s, up to what the rule can hold
--   answer(s, rule, cost)       -> remaining, microseconds until cost passes, until all is free
--   save(key, s, rule)             writes s with a time to live; also if s.stepped, see clock
--   refund(key, rule, units, at, now, slot)   takes back what was charged at `at`
-- load only reads: a peek leaves no trace.
--
-- Times are whole microseconds, below 2^53, so a Lua number holds them exactly.
-- Print them with %.0f: tostring shows 14 digits.

local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local format, match, sub, rep = string.format, string.match, string.sub, string.rep
local pack, unpack_int = struct.pack, struct.unpack

-- Built on first use only: making all closures at each call would cost more than
-- the decision itself.
local algorithms = {}

-- A test clock is not the server's clock, so keys must not expire by the latter.
local ttl_slack = 0

-- now_at returns the time of this decision. In production, test_clock is '' and the time
-- is the server's, the only clock that all edge nodes share.
local function now_at(test_clock)
  if test_clock ~= '' then
    ttl_slack = 3600000
    return tonumber(test_clock)
  end
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- clock returns the time that applies to a key last written at `at`. If the clock is
-- behind that by at most ten seconds, and no more than the window, time stands still for
-- the key until the clock has caught up. A clock further behind was set back: its time
-- applies, and the state is treated as current, as if no time had passed. That must be
-- saved even if nothing is charged, or the state would never age; hence the second
-- result.
local function clock(now, at, window)
  if now >= at then return now, false end
  if at - now <= min(window, 10000000) then return at, false end
  return now, true
end

local function ttl(us)
  return max(1, ceil(us / 1000)) + ttl_slack
end

-- trim removes expired members from a sorted set of which `live` are not, but no more
-- than `most`: clearing a million at once would delay every other call. It returns how
-- many expired members are left.
local function trim(key, live, most)
  local old = call('ZCARD', key) - live
  local gone = min(old, most)
  if gone > 0 then call('ZREMRANGEBYRANK', key, 0, gone - 1) end
  return old - gone
end

-- rule_of parses what Go wrote: a rule travels as data, so that changing one never
-- changes the script.
local function rule_of(text)
  local tag, limit, window, capacity, interval, drain, unit, count_denied, shadow, slowest =
    match(text, '^(%l+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d),(%d),(%d+)$')
  return {
    algorithm = algorithms[tag](),
    slots = tag == 'cc',
    limit = tonumber(limit),
    window = tonumber(window),
    capacity = tonumber(capacity),
    interval = tonumber(interval),
    drain = tonumber(drain),
    unit = tonumber(unit),
    count_denied = count_denied == '1',
    shadow = shadow == '1',
    slowest = tonumber(slowest),
  }
end
