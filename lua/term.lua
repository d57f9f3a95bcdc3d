-- term promises windows to a region: those that begin in the promised span are the holder's, as
-- far as this region is asked. What was promised to one holder is never promised to another,
-- so a region that a majority has promised a window is its only holder.
--
-- KEYS  the hash of promises, once per term
-- ARGV  test clock ('' in production), the longest promise, for how long an owner must be silent
--         before its heir gets windows, for how long what a store has forgotten may matter, then
--         per term: number of the division, the part, who asks, the last window's start,
--         number of the life of the asker's store (0: this store's own), a number for this
--         store's life if it has none, what the store of that life is settled as: 1 the first
--         of its region, 2 a later one, 3 whether it would be the first, 0 nothing, and the other regions, each with a comma after
--         it, of whose stores it must have heard to be settled as the first
-- Reply: the time, then seven numbers per term: 1 if promised, or 0, or -1 if the key does not
--   hold what this script writes; the first and the last start that are promised; from when on
--   that is sure though this store may have lost what it promised before; the number of this
--   store's life; what it is settled as; and whether no other life of the owner's store was
--   ever heard of
local longest, silence, forgotten, reply = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), { now }
local function text(n) return format('%.0f', n) end

for i = 1, #KEYS do
  local key, a = KEYS[i], 8 * i - 3
  local division, part, holder, upto = ARGV[a], ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3])
  local life, draw, settle = tonumber(ARGV[a + 4]), ARGV[a + 5], tonumber(ARGV[a + 6])
  local held = ask('HMGET', key, 'life', 'settled', 'division', 'since', 'most', 'sure',
    'h:' .. part, 'f:' .. part, 't:' .. part, 's:' .. part, 'l:' .. part)
  local promised, from, to, sure, mine, settled, first = -1, 0, 0, 0, 0, 0, 0
  if not held.err then
    promised = 0
    mine, sure = tonumber(held[1] or draw), tonumber(held[6] or now + forgotten)
    -- What was found out about a store does not hold for the one that took its place.
    if settle > 0 then
      if life ~= mine then settle = 0 end
      life = mine
      -- The first store of a region vouches for others, so it must know those that were spent from.
      for other in string.gmatch(settle ~= 2 and ARGV[a + 7] or '', '[^,]+') do
        if call('HEXISTS', key, 'l:' .. other) == 0 then settle = 0 end
      end
    end
    settled = tonumber(held[2] or settle)
    local since, most = tonumber(held[4] or 0), tonumber(held[5] or 0)
    if held[3] and held[3] ~= division then since = most + 1 end
    local was, seen = held[7] or part, tonumber(held[10] or now)
    from, to = tonumber(held[8] or 0), tonumber(held[9] or 0)
    if seen > now then seen = now end
    if life == 0 then life = mine end
    local heard = held[11]
    -- What the owner was promised before this store forgot it ends when that is sure.
    if not held[7] and part ~= holder then to = sure end
    if part == holder then
      seen, heard = now, heard or text(life)
      -- A store that has lost everything does not know whom it had heard of.
      first = settled ~= 2 and tonumber(heard) == life and 1 or 0
    end
    if part == holder or was == holder or now - seen > silence then
      promised = 1
      if was ~= holder then
        was, from = holder, to + 1
      end
      to = max(to, min(upto, now + longest))
      most = max(most, to)
    end
    from = max(from, since)
    call('HSET', key, 'life', text(mine), 'division', division, 'since', text(since), 'most', text(most), 'sure', text(sure),
      'h:' .. part, was, 'f:' .. part, text(from), 't:' .. part, text(to), 's:' .. part, text(seen))
    if heard then call('HSET', key, 'l:' .. part, heard) end
    if settled == 1 or settled == 2 then call('HSET', key, 'settled', text(settled)) end
    call('PEXPIRE', key, 5356800000 + slack)
  end
  local at = 7 * i - 5
  reply[at], reply[at + 1], reply[at + 2], reply[at + 3] = promised, from, to, sure
  reply[at + 4], reply[at + 5], reply[at + 6] = mine, settled, first
end
return reply
