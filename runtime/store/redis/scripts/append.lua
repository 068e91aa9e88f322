-- Adds an item to a log. Its key comes first: a place beyond the end of the log is one
-- that was never filled.
-- KEYS: log, logged.
-- ARGV: 1 offset, 2 base, 3 items seen, 4 key, 5 item.
-- Reply: {'ok' | 'known', place}; {'conflict', items there are}.
local length = redis.call('LLEN', KEYS[1])
local known = tonumber(redis.call('HGET', KEYS[2], ARGV[4]) or 0)
if known > 0 and known <= length then return {'known', known} end
if int(length) ~= ARGV[3] then return {'conflict', length} end
redis.call('HSET', KEYS[2], ARGV[4], int(length + 1))
return {'ok', redis.call('RPUSH', KEYS[1], ARGV[5])}
