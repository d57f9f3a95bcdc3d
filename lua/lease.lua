-- lease grants a node part of a limit in advance, charging now what the node may spend
-- until its lease ends. A grant is at most 1/divisor of what remains, so grants shrink as
-- the limit nears and stop when that share is below one.
--
-- KEYS  one per request for a lease; then, if a rule is a region's part, the key that records
--       since when the store has lost nothing
-- ARGV  test clock ('' in production), number of rules, the rules, then per request:
--         index of its rule, units wanted, divisor
-- Reply: the time of the grants, then four numbers per request: the units granted,
--   remaining, 0, reset; or what unreadable returns and three zeros
local rules, position, returning = {}, 3 + ARGV[2], false
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

local reply = { now }
for i = 1, min(#KEYS, floor((#ARGV + 1 - position) / 3)) do
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
    units = unreadable(key)
  end
  reply[4 * i - 2], reply[4 * i - 1], reply[4 * i], reply[4 * i + 1] = units, remaining, 0, reset
end
return reply
