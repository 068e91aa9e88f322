-- Reads the end of a log.
-- KEYS: log.
-- ARGV: 1 offset, 2 base.
-- Reply: {items there are, the last one or nil}.
return {redis.call('LLEN', KEYS[1]), redis.call('LINDEX', KEYS[1], -1)}
