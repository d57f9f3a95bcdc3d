-- load averages the nodes' utilization of each upstream group into the value that a region's
-- limits follow. The value changes once per second of this server's clock, so all nodes see
-- the same. Each node writes its own utilization, in thousandths, and the second to a field
-- of the group's hash; the first call in a second computes the next value from the mean, as
-- FollowLoad does in Go. Fields older than three seconds do not count.
--
-- KEYS  one hash per group
-- ARGV  test clock ('' in production), the node's field, then per group: its utilization,
--       negative if unknown
-- Reply: the time, then two numbers per group: the value and how many nodes it averages; or
--   -1 and 0 if the key holds foreign data
local second, reply = floor(now / 1000000), { now }
for i, key in ipairs(KEYS) do
  local own = tonumber(ARGV[2 + i])
  local held, value, nodes = ask('HGETALL', key), -1, 0
  if not held.err then
    local at, sum, smooth = second, 0, 0
    value = 0
    for f = 1, #held, 2 do
      local name = held[f]
      local when, what, shown = match(held[f + 1], '^(%d+) (%d+) ?(%d*)$')
      when, what = tonumber(when or 0), tonumber(what or 0)
      if name == 'value' then
        at, smooth, value = when, what, tonumber(shown) or what
      elseif name ~= ARGV[2] then
        if second - when > 3 or when - second > 3 then
          call('HDEL', key, name)
        else
          sum, nodes = sum + what, nodes + 1
        end
      end
    end
    if own >= 0 then
      call('HSET', key, ARGV[2], format('%.0f %.0f', second, own))
      sum, nodes = sum + own, nodes + 1
    else
      call('HDEL', key, ARGV[2])
    end
    local mean = nodes > 0 and floor(sum / nodes + 0.5) or 0
    -- The value lags if no node called meanwhile, and leads if the clock was set back.
    for _ = 1, at < second and min(second - at, 120) or at > second and 1 or #held == 0 and 1 or 0 do
      if mean > smooth then
        smooth = smooth + ceil((mean - smooth) / 16)
      else
        smooth = smooth - ceil((smooth - mean) / 48)
      end
      local off = smooth - value
      if off > 45 or off < -45 or smooth == 0 or smooth == 1000 then value = smooth end
    end
    if at ~= second or #held == 0 then call('HSET', key, 'value', format('%.0f %.0f %.0f', second, smooth, value)) end
    call('PEXPIRE', key, 120000 + slack)
  end
  reply[2 * i], reply[2 * i + 1] = value, nodes
end
return reply
