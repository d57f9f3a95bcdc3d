-- accounts shares the nodes' counts of client behavior within a region. Each node writes its
-- accounts to a field of one hash; any call removes fields older than three seconds. All
-- nodes hash subjects with the same secret, which the first node proposes.
--
-- KEYS  the hash
-- ARGV  test clock ('' in production), the node's field, its secret, and its accounts;
--       '' reads the others' accounts and leaves the node's own unchanged
-- Reply: the time, the secret to use, the number of other nodes and, if accounts was '',
--   the accounts of each; only the time if the key holds foreign data
local key, own, asks, reply = KEYS[1], ARGV[2], ARGV[4] == '', { format('%.0f', now) }
local held = ask('HGETALL', key)
if held.err then return reply end
local second, secret, others = floor(now / 1000000), '', 0
for f = 1, #held, 2 do
  local name, value = held[f], held[f + 1]
  if name == 'key' then
    secret = value
  elseif name ~= own then
    local when, at = match(value, '^(%d+) ()')
    when = tonumber(when or 0)
    if second - when > 3 or when - second > 3 then
      call('HDEL', key, name)
    else
      others = others + 1
      if asks then reply[#reply + 1] = string.sub(value, at) end
    end
  end
end
if secret == '' then
  secret = ARGV[3]
  call('HSET', key, 'key', secret)
end
table.insert(reply, 2, secret)
table.insert(reply, 3, format('%d', others))
if not asks then call('HSET', key, own, format('%.0f ', second) .. ARGV[4]) end
call('PEXPIRE', key, 5000 + slack)
return reply
