-- Ends a run nobody works on, or asks whoever works on it, or will, to end it.
-- KEYS: run, due.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 entries seen, 6 by, 7 retention in ms,
--   8 summary or '', 9 hold id or '', 10 hold status, 11 revision, 12 expiry,
--   13 creation, 14 agent, 15 blob, 16.. entries.
-- Reply: {'ok' | 'again', first entry, at, epoch, lease end, cancelled by}, where
--   a first entry of 0 says that the request was recorded; {'missing'};
--   {'conflict'}: finished, at other entries or with another hold; {'damaged'}.
local run = ARGV[3]
local rec = record(run)
if not rec then return {redis.call('EXISTS', KEYS[1]) == 1 and 'damaged' or 'missing'} end
local again = repeated(rec, ARGV[4])
if again then return again end
if finished(rec.status) then return {'conflict'} end
if rec.status == 'running' or rec.lease ~= '0' then
  if rec.cancel == '' then rec.cancel = ARGV[6] end
  redis.call('HSET', KEYS[1], 'v', changing(rec), 'o', remember(rec.ops, ARGV[4], '0', rec.epoch))
  if rec.lease == '0' then -- nobody has it: somebody must look at it now
    redis.call('ZADD', KEYS[2], NOW, run)
    wake()
  end
  return {'ok', '0', STAMP, rec.epoch, '0', rec.cancel}
end
if rec.seq ~= ARGV[5] or rec.hold ~= ARGV[9] then return {'conflict'} end
if counted(rec) ~= tonumber(rec.seq) then return {'damaged'} end

local t = {status = 'cancelled', epoch = rec.epoch, lease = 0, hold = '', summary = ARGV[8], op = ARGV[4], retention = ARGV[7], first = 16, keep = 9}
return {'ok', advance(rec, t), STAMP, rec.epoch, '0', rec.cancel}
