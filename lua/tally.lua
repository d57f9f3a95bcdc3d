-- tally adds what a node admitted under global limits to the region's counter. A node sends
-- its total for a key and window; only the increase is added, so repeats are harmless.
--
-- KEYS  the hash of the window's counters, one per tally
-- ARGV  test clock ('' in production), field of the node, then per tally: count, start and
--         width of the window
-- Reply: the time, then two numbers per tally: the node's previous total, and the region's
--   count; or -1 and 0 if the key holds foreign data
local field, reply = ARGV[2], { now }
for i, counters in ipairs(KEYS) do
  local count, at, width = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  local held = ask('HMGET', counters, field, 'own')
  local known, total = -1, 0
  if not held.err then
    known, total = tonumber(held[1] or 0), tonumber(held[2] or 0)
    if count > known then
      total = total + count - known
      call('HSET', counters, field, format('%.0f', count), 'own', format('%.0f', total))
      call('PEXPIRE', counters, format('%.0f', max(1, ceil((at + 2 * width + 20000000 - now) / 1000)) + slack))
    end
  end
  reply[2 * i], reply[2 * i + 1] = known, total
end
return reply
