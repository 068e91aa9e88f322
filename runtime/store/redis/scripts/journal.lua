-- Reads entries.
-- KEYS: run, journal.
-- ARGV: 1 offset, 2 base, 3 run, 4 entries to leave out at the front.
-- Reply: {entries the record counts or nil, entries there are, entries}.
local rec = record(ARGV[3])
return {rec and rec.seq or false, redis.call('LLEN', KEYS[2]), redis.call('LRANGE', KEYS[2], ARGV[4], -1)}
