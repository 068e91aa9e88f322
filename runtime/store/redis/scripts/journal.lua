-- Reads entries.
-- KEYS: run, journal.
-- ARGV: 1 offset, 2 base, 3 entries to leave out at the front.
-- Reply: {entries the record counts or nil, entries there are, entries}.
return {redis.call('HGET', KEYS[1], 'n'), redis.call('LLEN', KEYS[2]), redis.call('LRANGE', KEYS[2], ARGV[3], -1)}
