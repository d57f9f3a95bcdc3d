#!lua flags=allow-cross-slot-keys
-- Begins a script that serves keys of several slots of one Cluster master. The keys that a
-- command declares must be in one slot, so KEYS has the first one only. The last of ARGV is
-- the number of keys; the others stand before it.
do
  local n = ARGV[#ARGV] + 0
  for i = 2, n do KEYS[i] = ARGV[#ARGV - n + i - 1] end
end

