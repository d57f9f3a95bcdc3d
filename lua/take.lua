-- take decides requests. It peeks at all checks of a request; if every enforced check
-- passes, it charges them all. A refused request charges only rules that count denied
-- attempts. A rule with overdraft is charged in any case.
--
-- KEYS  one per check, in order; then, if a rule is a region's part of a limit, the key that
--       records since when the store has lost nothing
-- ARGV  test clock ('' in production), the plan, the number of rules, the rules, then the
--       slot of each check whose rule is concurrency
-- The plan is binary, big-endian; per request:
--         times   2 bytes: how many identical requests to decide; 0 only peeks
--         checks  2 bytes: how many checks follow, at least one, each 2 bytes for the
--                 index of its rule and 4 for its cost, signed if the rule has overdraft
-- Reply: the time of the decision, then four numbers per check:
--   how many of the requests this check passes, remaining, retry, reset
-- or, for every check of a request with a key that cannot be read, what unreadable returns
-- and three zeros. Such a request charges nothing and affects no other request of the call.
local plan, rules, slots, returning, lease = ARGV[2], {}, 3 + ARGV[3], false, 0
for i = 4, slots do rules[i - 3] = rule_of(ARGV[i]) end

local reply, size, first, position, length = { now, 0, 0, 0, 0 }, 1, 0, 1, #plan
local states = {}

while position < length do
  -- Read the request's numbers and its first check's together.
  local t, u, v, w, a, b, c, d, e, f = byte(plan, position, position + 9)
  position = position + 10
  local times, checks = t * 256 + u, v * 256 + w
  local peek = times == 0
  local asked = peek and 1 or times
  local granted, readable = asked, true

  for i = 1, checks do
    if i > 1 then
      a, b, c, d, e, f = byte(plan, position, position + 5)
      position = position + 6
    end
    local rule, cost = rules[a * 256 + b], ((c * 256 + d) * 256 + e) * 256 + f
    if rule.overdraft and cost > 2147483647 then cost = cost - 4294967296 end
    local key, s, n = KEYS[first + i], states[i], asked
    if not s then
      -- Fields for all algorithms, so that the table never grows.
      s = { rule = 0, cost = 0, fits = 0, slot = 0, key = 0, now = 0, stepped = 0, count = 0, newest = 0, a = 0, closed = false }
      states[i] = s
    end
    s.rule, s.cost = rule, cost
    if rule.tag == 'cc' then
      slots = slots + 1
      s.slot = ARGV[slots]
    end
    --- load
    if readable then
      --- fits
      s.fits = n
      if n < granted and not rule.shadow then granted = n end
    end
  end

  for i = 1, checks do
    local key, s = KEYS[first + i], states[i]
    local rule, cost, fits = s.rule, s.cost, s.fits
    local remaining, retry, reset = 0, 0, 0
    if not readable then
      fits = unreadable(key)
    else
      if not peek then
        local units = (fits < granted and fits or granted) * cost
        -- Requests that another check refused are not denials of this one.
        if rule.count_denied and fits <= granted then units = units + (asked - fits) * cost end
        if rule.overdraft then units = asked * cost end
        if units ~= 0 then
          --- charge
        end
        if units ~= 0 or s.stepped then
          --- save
        end
      end
      --- answer
      if fits == asked then retry = 0 end
    end
    reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = fits, remaining, retry, reset
    size = size + 4
  end
  first = first + checks
end

return reply
