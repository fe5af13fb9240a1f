-- The records are named by the index; they are in the slot of the other keys.
local over = redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, ARGV[1])
for _, key in ipairs(over) do
  local state = num(redis.call('HGET', key, 's'))
  redis.call('DEL', key)
  move(key, state, 0)
end
count()
return #over
