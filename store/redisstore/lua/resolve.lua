local expires = now + ARGV[1]

return each(1, 4, function(key, fence, to, has, result)
  local r = redis.call('HMGET', key, 's', 'f')
  local state = num(r[1])
  to = num(to)
  if state ~= FAILED and state ~= UNKNOWN or r[2] ~= fence then return 0 end
  if to == COMPLETED then
    complete(key, state, expires, has, result)
  else
    redis.call('HSET', key, 's', to)
    if to == WAITING then
      redis.call('HSET', key, 'r', now)
      if state == FAILED then redis.call('HSET', key, 'a', 0, 't', 0) end
    end
    move(key, state, to, expires)
  end
  redis.call('HDEL', key, 'c') -- who had it has no say any more
  return 1
end)
