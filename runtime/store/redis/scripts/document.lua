-- Replaces a document by a newer one. A repeat writes the same again: WAIT needs the
-- write.
-- KEYS: document.
-- ARGV: 1 offset, 2 base, 3 version seen, 4 version, 5 text.
-- Reply: {1 when it stands, the version that stands}.
local was = redis.call('HMGET', KEYS[1], 'n', 't')
if (was[1] or '0') == ARGV[3] or (was[1] == ARGV[4] and was[2] == ARGV[5]) then
  redis.call('HSET', KEYS[1], 'n', ARGV[4], 't', ARGV[5])
  return {1, ARGV[4]}
end
return {0, was[1] or '0'}
