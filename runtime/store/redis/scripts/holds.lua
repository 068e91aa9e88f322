-- Lists holds, newest first.
-- KEYS: the index to walk. Keys of holds are known only here.
-- ARGV: 1 offset, 2 base, 3 score and 4 id of the cursor or '', 5 most rows,
--   then what to choose or '': 6 agent, 7 status,
--   8 creation in ms which holds must be before.
-- Reply: {rows of {id, hold, score}, score, id, unread}: the place to go on from, or
--   '' and '', and the runs that cannot be read.
local function visit(id)
  local rest = string.match(id, '^h_(.+)_%d+$')
  local run = 'r_' .. (rest or '')
  local found = rest and hold(run, id)
  if rest and not found and not record(run) and there(run) then return skip(run) end
  if not found then return false end
  local status, created, agent = string.match(found, '^(%S+) %S+ %S+ (%S+) (%S*) ')
  if (ARGV[6] ~= '' and ARGV[6] ~= agent) or (ARGV[7] ~= '' and ARGV[7] ~= status)
    or (ARGV[8] ~= '' and (tonumber(created or '') or 0) >= tonumber(ARGV[8])) then return nil end
  return {id, found, redis.call('ZSCORE', KEYS[1], id)}
end
return walk(KEYS[1], ARGV[3], ARGV[4], tonumber(ARGV[5]), visit)
