-- Adds items to a log. Their keys come first: a place beyond the end of the log is one
-- that was never filled.
-- KEYS: log, logged.
-- ARGV: 1 offset, 2 base, 3 items seen, 4.. key and text of each item.
-- Reply: {'ok'}; {'known', key...}: they are there, nothing was added;
--   {'conflict', items there are}.
local length, known = redis.call('LLEN', KEYS[1]), {'known'}
for i = 4, #ARGV, 2 do
  local place = tonumber(redis.call('HGET', KEYS[2], ARGV[i]) or 0)
  if place > 0 and place <= length then known[#known + 1] = ARGV[i] end
end
if #known > 1 then return known end
if int(length) ~= ARGV[3] then return {'conflict', length} end
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], int(length + (i - 2) / 2)) end
for i = 5, #ARGV, 2 do redis.call('RPUSH', KEYS[1], ARGV[i]) end
return {'ok'}
