-- Reads a hold with its run.
-- KEYS: run.
-- ARGV: 1 offset, 2 base, 3 run, 4 hold.
-- Reply: {hold, record, journal, now}; missing parts are nil, or '' in the journal;
--   {} when the run cannot be read.
local rec = record(ARGV[3])
if not rec and there(ARGV[3]) then return {} end
return {hold(ARGV[3], ARGV[4]), answer(rec), rec and journal(rec, 0) or {}, STAMP}
