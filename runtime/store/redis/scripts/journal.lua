-- Reads entries.
-- KEYS: run.
-- ARGV: 1 offset, 2 base, 3 run, 4 entries to leave out at the front.
-- Reply: {entries the record counts or nil, entries there are, entries}; {} when
--   there is no such run.
local rec = record(ARGV[3])
if not rec then return there(ARGV[3]) and {false, 1} or {} end
return {rec.seq, counted(rec), journal(rec, tonumber(ARGV[4]))}
