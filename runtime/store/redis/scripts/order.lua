-- Replaces the orders of an environment by newer ones.
-- KEYS: orders.
-- ARGV: 1 offset, 2 base, 3 env, 4 version seen or '' to take what is newer, 5 version,
--   6 the orders.
-- Reply: {1 when they were replaced, the version that stands}.
local was = redis.call('HGET', KEYS[1], ARGV[3] .. ' n') or '0'
if ARGV[4] == was or (ARGV[4] == '' and tonumber(ARGV[5]) > tonumber(was)) then
  redis.call('HSET', KEYS[1], ARGV[3] .. ' n', ARGV[5], ARGV[3] .. ' o', ARGV[6])
  return {1, ARGV[5]}
end
return {0, was}
