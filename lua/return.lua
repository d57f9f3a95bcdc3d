-- return gives back what take charged: a concurrency slot when its request is done,
-- a charge when another slot's check refused the request.
--
-- KEYS  one per check
-- ARGV  test clock ('' in production), number of rules, the rules, then per check:
--         index of its rule, units, time of the charge, slot
-- Reply: the time of the return
local now = now_at(ARGV[1])
local rules, position = {}, 3 + ARGV[2]
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

for i = 1, #KEYS do
  local rule = rules[tonumber(ARGV[position])]
  -- A key that holds something else has nothing to give back, and harms no other.
  pcall(rule.algorithm.refund, KEYS[i], rule, tonumber(ARGV[position + 1]), tonumber(ARGV[position + 2]), now,
    ARGV[position + 3])
  position = position + 4
end
return { now }
