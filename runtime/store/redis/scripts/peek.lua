-- Tells how long runs have been due, for claiming the oldest of all partitions.
-- KEYS: due.
-- ARGV: 1 offset, 2 base, 3 most runs wanted.
-- Reply: the times they became due, oldest first.
local due, times = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', STAMP, 'WITHSCORES', 'LIMIT', 0, ARGV[3]), {}
for i = 2, #due, 2 do times[#times + 1] = due[i] end
return times
