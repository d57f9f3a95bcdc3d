-- move moves rights of a limit in escrow between this region and another. It adds what the
-- other region gave and charges what this one gives, which is at most what is left of its
-- part. The totals moved in a window only grow, so a move may arrive twice, late, or from
-- several nodes.
--
-- KEYS  two per move: the key, and the hash of its window's counters; then the key that
--         records since when the store has lost nothing
-- ARGV  test clock ('' in production), number of rules, the rules, then per move: index of
--         its rule, the other region, start of the window, the total it gave, the total to
--         give it (-1: charge all that is left, because the store has lost what was spent),
--         and how many rights stay here at least
-- Reply: the time, then four numbers per move: the total given, what is left, the total
--   received (-1 if the key holds foreign data), and 1 if the window's rights were charged
--   after a loss
local rules, position, returning = {}, 3 + ARGV[2], false
for i = 3, position - 1 do rules[i - 2] = rule_of(ARGV[i]) end

local reply = { now }
for i = 1, floor(#KEYS / 2) do
  local key, counters, rule, s = KEYS[2 * i - 1], KEYS[2 * i], rules[tonumber(ARGV[position])], {}
  local region, at, got = ARGV[position + 1], tonumber(ARGV[position + 2]), tonumber(ARGV[position + 3])
  local upto, keep = tonumber(ARGV[position + 4]), tonumber(ARGV[position + 5])
  position = position + 6
  local held = ask('HMGET', counters, 'o:' .. region, 'i:' .. region, 'burned')
  local readable, gave, known, burned, left = not held.err, 0, 0, false, 0
  if readable then
    gave, known, burned = tonumber(held[1] or 0), tonumber(held[2] or 0), held[3] and true
    --- load
    if readable and s.start == at then
      local count = s.count
      if upto < 0 or s.closed and not burned then
        burned, upto, s.count = true, -1, 99999999999999 -- the part may grow yet
        call('HSET', counters, 'burned', 1)
      elseif not burned then
        if got > known then
          s.count, known = s.count - (got - known), got
          call('HSET', counters, 'i:' .. region, format('%.0f', got))
        end
        local n = min(upto - gave, rule.limit - s.count - keep)
        if n > 0 then gave, s.count = gave + n, s.count + n end
        -- Write even if nothing moved: a caller that waits for replicas must wait for earlier writes.
        if gave > 0 then call('HSET', counters, 'o:' .. region, format('%.0f', gave)) end
      end
      if s.count ~= count or gave > 0 or upto < 0 then
        --- save
        call('PEXPIRE', counters, format('%.0f', max(1, ceil((at + 2 * rule.window + 20000000 - now) / 1000)) + slack))
      end
      left = max(0, rule.limit - s.count)
    end
  end
  reply[4 * i - 2], reply[4 * i - 1], reply[4 * i], reply[4 * i + 1] = gave, left, readable and known or -1, burned and 1 or 0
end
return reply
