-- Ends a run nobody works on, or asks whoever works on it, or will, to end it.
-- KEYS: run, due.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 1 to notify, 6 entries seen, 7 by, 8 retention in ms,
--   9 summary or '', 10 hold id or '', 11 hold status, 12 revision, 13 expiry,
--   14 creation, 15 agent, 16 blob, 17.. entries.
-- Reply: {'ok' | 'again', first entry, at, epoch, lease end, cancelled by}, where
--   a first entry of 0 says that the request was recorded; {'missing'};
--   {'conflict'}: finished, at other entries or with another hold; {'damaged'}: its
--   record cannot be read. Entries that are missing keep no run from its end.
local run = ARGV[3]
local rec = record(run)
if not rec then return {there(run) and 'damaged' or 'missing'} end
local again = repeated(rec, ARGV[4])
if again then return again end
if finished(rec.status) then return {'conflict'} end
if rec.status == 'running' or rec.lease ~= '0' then
  if rec.cancel == '' then rec.cancel = ARGV[7] end
  redis.call('HSET', KEYS[1], 'v', changing(rec), 'o', remember(rec.ops, ARGV[4], '0', rec.epoch))
  if rec.lease == '0' then -- nobody has it: somebody must look at it now
    redis.call('ZADD', KEYS[2], NOW, run)
    wake()
  end
  return {'ok', '0', STAMP, rec.epoch, '0', rec.cancel}
end
if rec.seq ~= ARGV[6] or rec.hold ~= ARGV[10] then return {'conflict'} end

local t = {status = 'cancelled', epoch = rec.epoch, lease = 0, hold = '', summary = ARGV[9], op = ARGV[4], notify = ARGV[5], retention = ARGV[8], first = 17, keep = 10}
return {'ok', advance(rec, t), STAMP, rec.epoch, '0', rec.cancel}
