-- take decides requests: first it peeks at every check of a request; then, if all
-- enforced ones pass, it charges every one. A refused request charges nothing, except for
-- rules that count denied attempts.
--
-- KEYS  one per check, in order
-- ARGV  test clock ('' in production), number of rules, the rules, then per request:
--         times   how many identical requests ask at once; 0 only peeks
--         checks  how many checks follow, each: index of its rule, cost, and the
--                 slot where the rule is concurrency
-- Reply: the time of the decision, then four numbers per check:
--   how many of the requests this check would pass, remaining, retry, reset
-- or -1 and three zeros for every check of a request with a key that does not hold what
-- these scripts write: it charges nothing and affects no other request of the call.
local now = now_at(ARGV[1])
local rules, position = {}, 3 + ARGV[2]
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

local reply, size, key = { now }, 1, 0
local rule_at, cost_at, slot_at, state_at, fits_at = {}, {}, {}, {}, {}

local function look(name, rule, cost, asked)
  local s = rule.algorithm.load(name, rule, now)
  return s, rule.algorithm.fits(s, rule, cost, asked)
end

while position <= #ARGV do
  local times, checks = tonumber(ARGV[position]), tonumber(ARGV[position + 1])
  position = position + 2
  local peek = times == 0
  local asked = peek and 1 or times
  local granted = asked
  local readable = true

  for i = 1, checks do
    local rule, cost = rules[tonumber(ARGV[position])], tonumber(ARGV[position + 1])
    position = position + 2
    if rule.slots then
      slot_at[i] = ARGV[position]
      position = position + 1
    end
    local understood, s, fits = pcall(look, KEYS[key + i], rule, cost, asked)
    if understood then
      rule_at[i], cost_at[i], state_at[i], fits_at[i] = rule, cost, s, fits
      if fits < granted and not rule.shadow then granted = fits end
    else
      readable = false
    end
  end

  if not readable then
    for i = 1, checks do
      reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = -1, 0, 0, 0
      size = size + 4
    end
    peek, checks, key = true, 0, key + checks
  end

  for i = 1, checks do
    local rule, cost, s, fits = rule_at[i], cost_at[i], state_at[i], fits_at[i]
    local algorithm = rule.algorithm
    if not peek then
      local units = min(granted, fits) * cost
      -- This check did not deny the requests that another check refused.
      if rule.count_denied and fits <= granted then units = units + (asked - fits) * cost end
      if units > 0 then algorithm.charge(s, rule, units, slot_at[i]) end
      if units > 0 or s.stepped then algorithm.save(KEYS[key + i], s, rule) end
    end
    local remaining, retry, reset = algorithm.answer(s, rule, cost)
    if fits == asked then retry = 0 end
    reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = fits, remaining, retry, reset
    size = size + 4
  end
  key = key + checks
end

return reply
