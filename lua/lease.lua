-- lease grants part of a limit to a node in advance: it charges at once what the node may
-- spend until its lease ends. It grants no more than the share of what remains, so little
-- is left over for one node as the limit nears, and nothing once the share is below one.
--
-- KEYS  one per ask
-- ARGV  test clock ('' in production), number of rules, the rules, then per ask:
--         index of its rule, units wanted, divisor of what remains
-- Reply: the time of the grants, then four numbers per ask: the units granted, remaining,
--   0, reset; or -1 and three zeros if the key does not hold what these scripts write
local rules, position, returning = {}, 3 + ARGV[2], false
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

local reply = { now }
for i = 1, #KEYS do
  local key, rule, s = KEYS[i], rules[tonumber(ARGV[position])], {}
  local want, divisor = tonumber(ARGV[position + 1]), tonumber(ARGV[position + 2])
  position = position + 3
  local lease, cost, n, units, readable = rule.lease, 1, 1000000000, 0, true
  local remaining, retry, reset = 0, 0, 0
  --- load
  if readable then
    --- fits
    units = max(0, min(want, floor(n / divisor)))
    if units > 0 then
      --- charge
    end
    if units > 0 or s.stepped then
      --- save
    end
    --- answer
  else
    units = -1
  end
  reply[4 * i - 2], reply[4 * i - 1], reply[4 * i], reply[4 * i + 1] = units, remaining, 0, reset
end
return reply
