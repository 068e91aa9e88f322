-- Reads a hold with its run.
-- KEYS: run.
-- ARGV: 1 offset, 2 base, 3 run, 4 hold.
-- Reply: {hold, record, journal, now}; missing parts are nil, or '' in the journal.
local rec = record(ARGV[3])
return {hold(ARGV[3], ARGV[4]), answer(rec), rec and journal(rec, 0) or {}, STAMP}
