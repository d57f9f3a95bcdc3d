-- return gives back what take charged: a concurrency slot when its request is done, or a
-- charge when another slot's check refused the request.
--
-- KEYS  one per check
-- ARGV  test clock ('' in production), number of rules, the rules, then per check:
--         index of its rule, units, time of the charge, slot
-- Reply: the time of the return
local now = now_at(ARGV[1])
local rules, position = {}, 3 + ARGV[2]
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

for i = 1, #KEYS do
  local rule, at = rules[tonumber(ARGV[position])], tonumber(ARGV[position + 2])
  -- If the clock was set back since, what has drained is unknown. A key that holds
  -- something else has nothing to return, and affects no other.
  if at <= now or rule.slots then
    pcall(rule.algorithm.refund, KEYS[i], rule, tonumber(ARGV[position + 1]), at, now, ARGV[position + 3])
  end
  position = position + 4
end
return { now }
