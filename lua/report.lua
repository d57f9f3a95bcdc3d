-- report adds what nodes admitted to the buckets of reported limits. It may overfill a
-- bucket, which then refuses until the excess has drained.
--
-- KEYS  one per report
-- ARGV  test clock ('' in production), number of rules, the rules, then per report:
--         index of its rule, units (negative: taken back)
-- Reply: the time, then per report the level in the rule's units; -1 if the key holds
--   foreign data
local rules, position, returning, lease = {}, 3 + ARGV[2], false, 0
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

local reply = { now }
for i = 1, #KEYS do
  local key, rule, s = KEYS[i], rules[tonumber(ARGV[position])], {}
  local units, readable = tonumber(ARGV[position + 1]), true
  position = position + 2
  --- load
  if readable then
    s.level = min(max(0, s.level + units * rule.unit), 4503599627370496)
    if units ~= 0 or s.stepped then
      --- save
    end
    reply[i + 1] = s.level
  else
    reply[i + 1] = -1
  end
end
return reply
