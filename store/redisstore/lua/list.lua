-- The records are named by the list; they are in the slot of the other keys.
local found = {}
for i, key in ipairs(redis.call('ZRANGEBYLEX', lists[num(ARGV[1])], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])) do
  found[i] = {key, show(key)}
end
return found
