-- Records how the store is laid out, or answers how it was laid out before.
-- KEYS: layout.
-- ARGV: 1 offset, 2 base, 3 format, 4 partitions.
-- Reply: {format, partitions} as recorded.
redis.call('HSETNX', KEYS[1], 'format', ARGV[3])
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[4])
return redis.call('HMGET', KEYS[1], 'format', 'partitions')
