-- Reads a hold with its run.
-- KEYS: run, journal, hold.
-- ARGV: 1 offset, 2 base, 3 run.
-- Reply: {hold blob, record, journal, now}; missing parts are nil.
return {redis.call('HGET', KEYS[3], 'b'), answer(record(ARGV[3])), redis.call('LRANGE', KEYS[2], 0, -1), STAMP}
