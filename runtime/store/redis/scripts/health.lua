-- Writes, to find out whether that is possible, and tells the runs that claim has
-- set aside and that still cannot be read.
-- KEYS: layout, aside, due.
-- ARGV: 1 offset, 2 base.
-- Reply: {how many, up to ten of them}.
redis.call('HSET', KEYS[1], 'checked', '1')
local some = {}
for _, run in ipairs(redis.call('ZRANGE', KEYS[2], 0, 99)) do
  if record(run) or not redis.call('ZSCORE', KEYS[3], run) then
    redis.call('ZREM', KEYS[2], run)
  elseif #some < 10 then
    some[#some + 1] = run
  end
end
return {redis.call('ZCARD', KEYS[2]), some}
