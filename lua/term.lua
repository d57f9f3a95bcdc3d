-- term votes on which region holds a part of a limit. A vote promises the holder all windows
-- that begin in a span. No vote promises a window to two holders, so a region with the votes
-- of a majority is its only holder.
--
-- A store's life is the number that it draws when it starts empty. A life is settled as the
-- first of its region, or as a later one that follows a loss of data.
--
-- KEYS  the hash of promises, once per term
-- ARGV  test clock ('' in production), the longest promise, how long an owner must be silent
--         before its heir gets windows, how long promises that a store forgot may matter, then
--         per term: number of the division, the part, the region that asks, the last window's
--         start, the life of the asker's store (0: this store), a life for this store if it has
--         none, what to settle that life as (1 the first, 2 a later one, 3 find out whether it
--         would be the first, 0 nothing), and the other regions, each followed by a comma, whose
--         stores it must have heard of to be settled as the first
-- Reply: the time, then seven numbers per term: 1 if promised, 0 if not, or -1 if the key holds
--   foreign data; the first and the last start promised; from when on the promise is certain
--   although this store may have forgotten earlier ones; this store's life; what it is settled
--   as; and 1 if it has heard of no other life of the owner's store
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
    -- A finding about a store does not apply to its successor.
    if settle > 0 then
      if life ~= mine then settle = 0 end
      life = mine
      -- A region's first store vouches for others, so it must have heard of those in use.
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
    -- Promises to the owner that this store may have forgotten end when they are certain to have expired.
    if not held[7] and part ~= holder then to = sure end
    if part == holder then
      seen, heard = now, heard or text(life)
      -- A store that lost its data no longer knows which lives it had heard of.
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
