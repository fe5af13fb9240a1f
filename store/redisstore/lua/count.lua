local n = redis.call('HMGET', counts, CLAIMED, WAITING, COMPLETED, FAILED, UNKNOWN)
for i = 1, #delta do n[i] = num(n[i]) end
return n
