-- Stores a value of a run's state, which lives as long as its run.
-- KEYS: state, run.
-- ARGV: 1 offset, 2 base, 3 name, 4 value.
-- Reply: 1.
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
local ttl = redis.call('PTTL', KEYS[2])
if ttl > 0 then redis.call('PEXPIRE', KEYS[1], ttl) end
return 1
