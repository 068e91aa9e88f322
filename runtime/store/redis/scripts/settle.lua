-- Keeps what came of telling others of a run.
-- KEYS: notices, told, run.
-- ARGV: 1 offset, 2 base, 3 run, 4 claim, 5 entries seen, 6 due in ms from now or ''
--   when there is no more to tell, 7 what was told.
-- Reply: {'ok'}; {'lost'}: it was claimed again, or the run is gone.
local rec = record(ARGV[3])
if not rec or redis.call('HGET', KEYS[2], 'n') ~= ARGV[4] then return {'lost'} end
redis.call('HSET', KEYS[2], 'x', ARGV[7], 'c', '0')
if rec.seq ~= ARGV[5] then
  redis.call('ZADD', KEYS[1], STAMP, ARGV[3])
elseif ARGV[6] == '' then
  redis.call('ZREM', KEYS[1], ARGV[3])
else
  redis.call('ZADD', KEYS[1], NOW + ARGV[6], ARGV[3])
end
return {'ok'}
