-- conduct lets the nodes of a region tell each other what they counted of clients. Each keeps
-- its accounts in a field of one hash; what a node said more than three seconds ago is removed
-- by the next that asks. Subjects have the same names on all nodes by a key that the first one
-- proposes.
--
-- KEYS  the hash
-- ARGV  test clock ('' in production), field of the node, the key that it uses, and its
--       accounts: '' to ask only, without a change to what it said
-- Reply: the time, the key to use, how many other nodes there are, and for one that only asks,
--   the accounts of each; only the time if the key holds what this script does not write
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
