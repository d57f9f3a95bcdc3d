-- lend moves tokens of a bucket in escrow between this region and another. Giver and
-- receiver each count the tokens moved since the receiver's counters began. The counts only
-- grow, so a message may arrive twice, late, or from several nodes.
--
-- KEYS  two per move: the key, and the hash of its counters; then the key that records since
--       when the store has lost nothing. The hash holds
--         id          when the counters began
--         g:<region>  tokens given: the receiver's id, the total, the part of it that is
--                     settled (need not come back), and when that was last confirmed
--         i:<region>  tokens received: the total, and the part of it that is settled
-- ARGV  test clock ('' in production), how long after its request a region accepts tokens,
--       how long given tokens count as out, number of rules, the rules, then per move:
--       index of its rule, step (0 look, 1 ask, 2 give, 3 take, 4 empty), the other region,
--       id and time of the request, the settled total, the total to give (3: received), and
--       how many tokens stay here at least
-- Reply: the time, then six numbers per move: the total given, its settled part, what is
--   left, the total received, id, and 1; or -1 as the last if the key holds foreign data
local lasts, held, position, returning, lease = tonumber(ARGV[2]), tonumber(ARGV[3]), 5 + ARGV[4], false, 0
local rules = {}
for i = 5, position - 1 do rules[i - 4] = rule_of(ARGV[i]) end
local function text(n) return string.format('%.0f', n) end

local reply = { now }
for i = 1, floor(#KEYS / 2) do
  local key, counters, rule, s = KEYS[2 * i - 1], KEYS[2 * i], rules[tonumber(ARGV[position])], {}
  local step, region = tonumber(ARGV[position + 1]), ARGV[position + 2]
  local id, asked, closes = tonumber(ARGV[position + 3]), tonumber(ARGV[position + 4]), tonumber(ARGV[position + 5])
  local upto, keep = tonumber(ARGV[position + 6]), tonumber(ARGV[position + 7])
  position = position + 8
  local list = ask('HGETALL', counters)
  local readable, gave, closed, got, mine, left = not list.err, 0, 0, 0, 0, 0
  if readable then
    --- load
  end
  if readable then
    local unit, out, till, pending, changed, fields = rule.unit, 0, 0, 0, false, {}
    for j = 1, #list, 2 do fields[list[j]] = list[j + 1] end
    mine = tonumber(fields.id or 0)
    for field, value in pairs(fields) do
      local a, b, c, d = match(value, '^(%d+) (%d+) ?(%d*) ?(%d*)$')
      if a and byte(field) == 103 and field ~= 'g:' .. region and now - d <= held and b - c > 0 then
        out, till = out + b - c, max(till, d + held)
      elseif a and byte(field) == 105 then
        pending = pending + a - b
      end
    end
    local theirs, last = 0, 0
    if fields['g:' .. region] then
      local a, b, c, d = match(fields['g:' .. region], '^(%d+) (%d+) (%d+) (%d+)$')
      theirs, gave, closed, last = a + 0, b + 0, c + 0, d + 0
    end
    local known, confirmed = match(fields['i:' .. region] or '0 0', '^(%d+) (%d+)$')
    got, confirmed = known + 0, confirmed + 0

    if step == 2 and (id >= theirs or now - last > held) and id > 0 then
      -- The receiver began new counters, which know nothing of earlier gifts. Counters that seem
      -- older belong to a clock that was set back, or to a late message, which moves nothing that
      -- the receiver still accepts.
      if id ~= theirs then theirs, gave, closed = id, 0, 0 end
      -- This store has lost its count of gifts.
      if closes > gave then gave, closed = closes, closes end
      closed = max(closed, closes)
      if now - last > held then closed = gave end
      local n = min(upto - gave, floor((s.full - s.judged) / unit) - keep)
      if n > 0 and s.level >= s.out * unit then
        gave, s.level, s.judged, changed = gave + n, s.level + n * unit, s.judged + n * unit, true
        s.out = s.out + n
      end
      last = now
      -- Write even if nothing moved: a caller that waits for replicas must wait for earlier writes.
      call('HSET', counters, 'g:' .. region, text(theirs) .. ' ' .. text(gave) .. ' ' .. text(closed) .. ' ' .. text(last))
    elseif step == 2 then
      gave, closed = 0, 0
    end
    if theirs > 0 and now - last <= held and gave > closed then
      out, till = out + gave - closed, max(till, last + held)
    end
    if out > s.out then -- the key was lost, or reset
      s.level, s.judged, changed = s.level + (out - s.out) * unit, s.judged + (out - s.out) * unit, true
    end
    if out ~= s.out or till ~= s.till then s.out, s.till, changed = out, till, true end

    if step == 1 then
      if mine == 0 then
        mine = now
        call('HSET', counters, 'id', text(mine))
      end
      -- Lenders still count the tokens that this region cannot give back.
      local free = pending - max(0, ceil((s.out * unit - s.level) / unit))
      local n = min(got - confirmed, free)
      if n > 0 then
        confirmed = confirmed + n
        call('HSET', counters, 'i:' .. region, text(got) .. ' ' .. text(confirmed))
      end
      closed = confirmed
    elseif step == 3 and id == mine and mine > 0 and now <= asked + lasts and asked <= now + 10000000 then
      local open = call('GET', KEYS[#KEYS])
      local n = upto - max(got, closes)
      if n > 0 and open and now >= open + 0 then
        if s.level >= s.out * unit then s.loan = asked + lasts end
        s.level, s.judged, changed = s.level - n * unit, s.judged - n * unit, true
        got, confirmed = upto, max(confirmed, min(closes, upto))
        call('HSET', counters, 'i:' .. region, text(got) .. ' ' .. text(confirmed))
      end
    elseif step == 4 then
      s.level, s.judged, changed = max(s.level, rule.have * unit), max(s.judged, s.full), true
    end
    if changed then
      --- save
    end
    if step > 0 then call('PEXPIRE', counters, format('%.0f', 600000 + slack)) end
    left = max(0, floor((s.full - s.judged) / unit))
  end
  local j = 6 * i - 4
  reply[j], reply[j + 1], reply[j + 2], reply[j + 3] = gave, closed, left, got
  reply[j + 4], reply[j + 5] = mine, readable and 1 or -1
end
return reply
