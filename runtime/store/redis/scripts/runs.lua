-- Lists runs, newest first.
-- KEYS: the index to walk. Keys of runs are known only here.
-- ARGV: 1 offset, 2 base, 3 score and 4 id of the cursor or '', 5 most rows,
--   then what to choose or '': 6 agent, 7 capability, 8 session, 9 status.
-- Reply: {rows of {run, record, entries in the journal, first entry, last entry,
--   hold}, score, id, unread}: the place to go on from, or '' and '', and the runs
--   that cannot be read. Missing parts are nil.
local function visit(run)
  local rec = record(run)
  if not rec and there(run) then return skip(run) end
  if not rec then
    -- Its retention is over, unless somebody still waits for it.
    if redis.call('ZSCORE', BASE .. 'due', run) then return nil end
    return false
  end
  local _, agent, capability, session = fixed(rec)
  if (ARGV[6] ~= '' and ARGV[6] ~= agent) or (ARGV[7] ~= '' and ARGV[7] ~= capability)
    or (ARGV[8] ~= '' and ARGV[8] ~= session) or (ARGV[9] ~= '' and ARGV[9] ~= rec.status) then return nil end
  local ends = redis.call('HMGET', BASE .. 'r:' .. run, '1', rec.seq)
  return {run, answer(rec), counted(rec), ends[1], ends[2], rec.status == 'held' and hold(run, rec.hold)}
end
return walk(KEYS[1], ARGV[3], ARGV[4], tonumber(ARGV[5]), visit)
