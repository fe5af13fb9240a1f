local retention = ARGV[1]

return each(1, 6, function(key, id, to, delay, uncounted, reason, payload)
  local r = redis.call('HMGET', key, 's', 'c')
  local state = num(r[1])
  to = num(to)
  if r[2] ~= id then return 0 end
  if state == to then return 1 end
  if state ~= CLAIMED then return 0 end
  redis.call('HSET', key, 's', to, 'w', reason)
  if to == WAITING then
    -- The payload of an earlier failure stays: until the key is complete it may be
    -- the only copy.
    redis.call('HSET', key, 'r', now + delay)
    if uncounted == '1' then redis.call('HINCRBY', key, 'a', -1) end
    move(key, CLAIMED, to, now + delay + retention)
    return 1
  end
  redis.call('HSET', key, 'y', payload)
  redis.call('HDEL', key, 'r')
  move(key, CLAIMED, to, to == FAILED and now + retention)
  return 1
end)
