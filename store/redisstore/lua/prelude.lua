-- What the scripts share. KEYS are the numbers of records by state, the index of
-- those that expire, the lists of waiting, failed and unknown ones, and then one
-- record for every request.
--
-- Where memory is full, Redis refuses a script at its first write, unless that
-- one can't need memory. So a change begins with HSET, to be refused whole, and a
-- removal with DEL, to be always possible.
local CLAIMED, WAITING, COMPLETED, FAILED, UNKNOWN = 1, 2, 3, 4, 5
local counts, expiries, first = KEYS[1], KEYS[2], 6
local lists = {[WAITING] = KEYS[3], [FAILED] = KEYS[4], [UNKNOWN] = KEYS[5]}
local expiring = {[WAITING] = true, [COMPLETED] = true, [FAILED] = true}
local delta = {0, 0, 0, 0, 0}
local now = {clock}

local function num(v) return tonumber(v or 0) end

-- move keeps the books when a record goes from one state to another; 0 is absent.
local function move(key, from, to, expires)
  if lists[from] then redis.call('ZREM', lists[from], key) end
  if lists[to] then redis.call('ZADD', lists[to], 0, key) end
  if expires then
    redis.call('ZADD', expiries, expires, key)
  elseif expiring[from] then
    redis.call('ZREM', expiries, key)
  end
  if from > 0 then delta[from] = delta[from] - 1 end
  if to > 0 then delta[to] = delta[to] + 1 end
end

local function count()
  for state, n in ipairs(delta) do
    if n ~= 0 then redis.call('HINCRBY', counts, state, n) end
  end
end

-- each lets the requests act one after the other. ARGV holds what they share, and
-- then what each of them brings.
local function each(shared, width, act)
  local answers = {}
  for i = first, #KEYS do
    local at = shared + (i - first) * width
    answers[i - first + 1] = act(KEYS[i], unpack(ARGV, at + 1, at + width))
  end
  count()
  return answers
end

-- complete is the end of a claim, and of a resolution.
local function complete(key, from, expires, has, result)
  redis.call('HSET', key, 's', COMPLETED)
  if has == '1' then redis.call('HSET', key, 'v', result) end
  redis.call('HDEL', key, 'r', 'w', 'y')
  move(key, from, COMPLETED, expires)
end
