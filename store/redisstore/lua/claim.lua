local ACQUIRED, BUSY, NOT_DUE, DONE, NOBODY_KNOWS, MISMATCH = 1, 2, 3, 4, 5, 6

return each(0, 5, function(key, id, lease, print, owner, noTakeover)
  local r = redis.call('HMGET', key, 's', 'c', 'f', 'a', 't', 'x', 'r', 'p')
  local state, fence, attempt, takeovers = num(r[1]), num(r[3]), num(r[4]), num(r[5])
  local repeated, wait, tookOver = r[2] == id, num(r[7]) - now, 0
  if print ~= '' and r[8] and r[8] ~= print then return {MISMATCH, fence, takeovers} end
  if state == COMPLETED then return {DONE, fence, takeovers, 0, 0, 0, redis.call('HGET', key, 'v')} end
  if state == UNKNOWN then return {NOBODY_KNOWS, fence, takeovers} end
  if state == CLAIMED then
    if repeated then
      redis.call('HSET', key, 'r', now + lease)
      return {ACQUIRED, fence, takeovers, attempt, num(r[6])}
    end
    if wait > 0 then return {BUSY, fence, takeovers, 0, 0, wait} end
    tookOver, takeovers = 1, takeovers + 1
    if noTakeover == '1' then
      redis.call('HSET', key, 's', UNKNOWN, 't', takeovers)
      redis.call('HDEL', key, 'c', 'r')
      move(key, CLAIMED, UNKNOWN)
      return {NOBODY_KNOWS, fence, takeovers}
    end
  elseif state > 0 and (repeated or wait > 0) then
    return {NOT_DUE, fence, takeovers, 0, 0, math.max(wait, 0)}
  end
  fence, attempt = fence + 1, attempt + 1
  redis.call('HSET', key, 's', CLAIMED, 'c', id, 'f', fence, 'a', attempt, 't', takeovers, 'x', tookOver,
    'r', now + lease, 'o', owner)
  if state == 0 and print ~= '' then redis.call('HSET', key, 'p', print) end
  move(key, state, CLAIMED)
  return {ACQUIRED, fence, takeovers, attempt, tookOver}
end)
