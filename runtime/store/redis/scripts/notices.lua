-- Claims runs of which others are to be told. Keys of runs are known only here.
-- KEYS: notices.
-- ARGV: 1 offset, 2 base, 3 most wanted, 4 length of the claim in ms.
-- Reply: rows of {run, was due at, env, entries, claim, what was told or nil}. A run
--   that is gone leaves the list.
local rows = {}
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', STAMP, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
for i = 1, #due, 2 do
  local run, key, rec = due[i], BASE .. 't:' .. due[i], record(due[i])
  if rec then
    local claim, ttl = redis.call('HINCRBY', key, 'n', 1), redis.call('PTTL', BASE .. 'r:' .. run)
    redis.call('HSET', key, 'c', int(NOW + ARGV[4]))
    redis.call('ZADD', KEYS[1], NOW + ARGV[4], run)
    if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
    rows[#rows + 1] = {run, due[i + 1], string.match(rec.fixed, '^%S*'), rec.seq, claim, redis.call('HGET', key, 'x')}
  elseif there(run) then -- unreadable: later, perhaps
    redis.call('ZADD', KEYS[1], NOW + 3600000, run)
  else
    redis.call('ZREM', KEYS[1], run)
  end
end
return rows
