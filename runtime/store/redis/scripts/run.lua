-- Reads one run without its journal.
-- KEYS: run.
-- ARGV: 1 offset, 2 base, 3 run.
-- Reply: {record, entries in the journal, first entry, last entry, hold}; {} when
--   there is no such run. Missing parts are nil.
local rec = record(ARGV[3])
if not rec then return there(ARGV[3]) and {{}} or {} end
local ends = redis.call('HMGET', KEYS[1], '1', rec.seq)
return {answer(rec), counted(rec), ends[1], ends[2], rec.status == 'held' and hold(rec.run, rec.hold)}
