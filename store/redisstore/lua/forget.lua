local force = ARGV[1]

return each(1, 0, function(key)
  local r = redis.call('HMGET', key, 's', 'r')
  local state = num(r[1])
  if state == 0 then return 1 end
  if force ~= '1' and state == CLAIMED and num(r[2]) > now then return 0 end
  redis.call('DEL', key)
  move(key, state, 0)
  return 1
end)
