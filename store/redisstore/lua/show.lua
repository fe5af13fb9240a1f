-- show reads a record; its times are told as distances from now.
local function show(key)
  local r = redis.call('HMGET', key, 's', 'f', 'a', 't', 'o', 'p', 'w', 'y', 'v', 'r')
  local expires = redis.call('ZSCORE', expiries, key)
  r[10] = r[10] and tonumber(r[10]) - now
  r[11] = expires and tonumber(expires) - now
  return r
end
