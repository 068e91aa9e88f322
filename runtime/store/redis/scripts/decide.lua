-- Replaces a pending hold; one that is closed so sets its run going.
-- KEYS: run, due.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 1 to notify, 6 revision seen, 7 lease in ms or 0,
--   8 summary or '', 9 hold id, 10 hold status, 11 revision, 12 expiry,
--   13 creation, 14 agent, 15 blob, 16.. entries.
-- Reply: {'ok' | 'again', first entry, at, epoch, lease end, cancelled by,
--   record}; {'missing'}: no such hold; {'conflict'}: not pending, at another
--   revision, expired, or its run is not held; {'damaged'}: parts are missing.
local run, id = ARGV[3], ARGV[9]
local rec = record(run)
if not rec then return {there(run) and 'damaged' or 'missing'} end
local was = hold(run, id)
local again, newest = repeated(rec, ARGV[4])
if newest then
  again[7] = answer(rec)
  return again
end
if not was then return {rec.hold == id and 'damaged' or 'missing'} end
local stands, revision, expiry = string.match(was, '^(%l+) (%d+) (%d+) ')
if not stands then return {'damaged'} end
if stands ~= 'pending' or revision ~= ARGV[6] or NOW >= tonumber(expiry)
  or rec.status ~= 'held' or rec.hold ~= id or rec.lease ~= '0' then return {'conflict'} end
if counted(rec) ~= tonumber(rec.seq) then return {'damaged'} end

local t = {status = 'held', epoch = rec.epoch, lease = 0, hold = id, due = ARGV[12], summary = ARGV[8], op = ARGV[4], notify = ARGV[5], first = 16, keep = 9}
if ARGV[10] ~= 'pending' then
  t.status, t.hold, t.due = 'running', '', NOW
  if ARGV[7] == '0' then
    wake()
  else
    t.epoch, t.lease = int(rec.epoch + 1), NOW + ARGV[7]
    t.due = t.lease
  end
end
return {'ok', advance(rec, t), STAMP, t.epoch, int(t.lease), '', answer(rec)}
