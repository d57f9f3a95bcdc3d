-- merge charges what other regions admitted. A region's count for a key and window only
-- grows, and a hash records how much of it was charged. Only the difference is charged, so
-- a count may arrive twice, late, or from several nodes.
--
-- KEYS  two per count: the key, and the hash of its window's counters
-- ARGV  test clock ('' in production), number of rules, the rules, then per count:
--         index of its rule, the region's field, count, start and width of the window
-- Reply: the time, then per count what had been charged before; -1 if the key holds foreign
--   data; -2 if the window has not begun here
local rules, position, returning, lease = {}, 3 + ARGV[2], false, 0
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

local reply = { now }
for i = 1, #KEYS / 2 do
  local key, counters, rule, s = KEYS[2 * i - 1], KEYS[2 * i], rules[tonumber(ARGV[position])], {}
  local field, count = ARGV[position + 1], tonumber(ARGV[position + 2])
  local at, width = tonumber(ARGV[position + 3]), tonumber(ARGV[position + 4])
  position = position + 5
  local known = ask('HGET', counters, field)
  local readable, changed, early = type(known) ~= 'table', false, false
  known = readable and known and tonumber(known) or 0
  local units = count - known
  if readable and units > 0 then
    --- load
    if readable then
      --- merge
    end
    if changed then
      --- save
    end
    if readable and not early then
      call('HSET', counters, field, format('%.0f', count))
      call('PEXPIRE', counters, format('%.0f', max(1, ceil((at + 2 * width + 20000000 - now) / 1000)) + slack))
    end
  end
  reply[i + 1] = not readable and -1 or early and -2 or known
end
return reply
