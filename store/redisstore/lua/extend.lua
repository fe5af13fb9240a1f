return each(0, 2, function(key, id, lease)
  local r = redis.call('HMGET', key, 's', 'c')
  if num(r[1]) ~= CLAIMED or r[2] ~= id then return 0 end
  redis.call('HSET', key, 'r', now + lease)
  return 1
end)
