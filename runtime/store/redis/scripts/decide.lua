-- Replaces a pending hold; one that is closed so sets its run going.
-- KEYS: run, due.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 revision seen, 6 lease in ms or 0,
--   7 summary or '', 8 hold id, 9 hold status, 10 revision, 11 expiry,
--   12 creation, 13 agent, 14 blob, 15.. entries.
-- Reply: {'ok' | 'again', first entry, at, epoch, lease end, cancelled by,
--   record}; {'missing'}: no such hold; {'conflict'}: not pending, at another
--   revision, expired, or its run is not held; {'damaged'}: parts are missing.
local run, id = ARGV[3], ARGV[8]
local rec = record(run)
if not rec then return {redis.call('EXISTS', KEYS[1]) == 1 and 'damaged' or 'missing'} end
local was = hold(run, id)
local again, newest = repeated(rec, ARGV[4])
if newest then
  again[7] = answer(rec)
  return again
end
if not was then return {rec.hold == id and 'damaged' or 'missing'} end
local stands, revision, expiry = string.match(was, '^(%S+) (%S+) (%S+)')
if stands ~= 'pending' or revision ~= ARGV[5] or NOW >= tonumber(expiry)
  or rec.status ~= 'held' or rec.hold ~= id or rec.lease ~= '0' then return {'conflict'} end
if counted(rec) ~= tonumber(rec.seq) then return {'damaged'} end

local t = {status = 'held', epoch = rec.epoch, lease = 0, hold = id, due = ARGV[11], summary = ARGV[7], op = ARGV[4], first = 15, keep = 8}
if ARGV[9] ~= 'pending' then
  t.status, t.hold, t.due = 'running', '', NOW
  if ARGV[6] == '0' then
    wake()
  else
    t.epoch, t.lease = int(rec.epoch + 1), NOW + ARGV[6]
    t.due = t.lease
  end
end
return {'ok', advance(rec, t), STAMP, t.epoch, int(t.lease), '', answer(rec)}
