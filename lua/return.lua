-- return gives back what take charged: a concurrency slot when its request ends, or a
-- charge when a check in another hash slot refused the request.
--
-- KEYS  one per check
-- ARGV  test clock ('' in production), number of rules, the rules, then per check:
--         index of its rule, units, time of the charge (Limit.ChargedAt), slot
-- Reply: the time of the return
local rules, position, returning = {}, 3 + ARGV[2], true
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

for i = 1, #KEYS do
  local key, rule, s = KEYS[i], rules[tonumber(ARGV[position])], { slot = ARGV[position + 3] }
  local units, at, readable, changed = tonumber(ARGV[position + 1]), tonumber(ARGV[position + 2]), true, false
  position = position + 4
  -- If the clock was set back since, how much has drained is unknown. A key with foreign
  -- data is skipped.
  if at <= now + 2 * rule.lease or rule.tag == 'cc' then
    --- load
    if readable then
      --- refund
    end
    if changed then
      --- save
    end
  end
end
return { now }
