-- Reads one run without its journal.
-- KEYS: run, journal. The key of the hold is known only here.
-- ARGV: 1 offset, 2 base, 3 run.
-- Reply: {record, entries in the journal, first entry, last entry, hold blob};
--   {} when there is no such run. Missing parts are nil.
local rec, length = record(ARGV[3]), redis.call('LLEN', KEYS[2])
if not rec and length == 0 then return {} end
local hold = false
if rec and rec.status == 'held' then hold = redis.call('HGET', BASE .. 'h:' .. rec.hold, 'b') end
return {answer(rec), length, redis.call('LINDEX', KEYS[2], 0), redis.call('LINDEX', KEYS[2], -1), hold}
