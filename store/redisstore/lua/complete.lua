local retention = ARGV[1]

return each(1, 3, function(key, id, has, result)
  local r = redis.call('HMGET', key, 's', 'c')
  local state = num(r[1])
  if r[2] ~= id then return 0 end
  if state == COMPLETED then return 1 end
  if state ~= CLAIMED then return 0 end
  complete(key, CLAIMED, now + retention, has, result)
  return 1
end)
