-- Appends entries under a lease and moves the run on.
-- KEYS: run, due.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 epoch, 6 status, 7 lease in ms,
--   8 due in ms from now, 9 retention in ms, 10 summary or '', 11 orders judged by
--   or '', 12 hold id or '', 13 hold status, 14 revision, 15 expiry, 16 creation,
--   17 agent, 18 blob, 19.. entries.
-- Reply: {'ok' | 'again', first entry, at, epoch, lease end, cancelled by};
--   {'lost'}: another epoch, no lease, or no run; {'hold', id}: the run waits on
--   another hold, which must be closed, or on none and the one given is old;
--   {'orders'}: there are newer ones;
--   {'damaged'}: entries or the hold are missing, which only lets the run finish.
local run, status = ARGV[3], ARGV[6]
local rec = record(run)
if not rec then return {redis.call('EXISTS', KEYS[1]) == 1 and 'damaged' or 'lost'} end
local current = rec.epoch == ARGV[5] and rec.lease ~= '0'
local again, newest = repeated(rec, ARGV[4])
if again and (current or (newest and ARGV[7] == '0')) then return again end
if not current then return {'lost'} end
local pending, id = rec.hold, ARGV[12]
local there = pending ~= '' and hold(run, pending)
if there and pending ~= id then return {'hold', pending} end
if pending == '' and id ~= '' and (status ~= 'held' or tonumber(string.match(id, '_(%d+)$')) <= tonumber(rec.holds)) then return {'hold', ''} end
local whole = counted(rec) == tonumber(rec.seq) and (there or pending == '')
if not whole and not finished(status) then return {'damaged'} end
if ARGV[11] ~= '' then
  local env = fixed(rec)
  if tonumber(redis.call('HGET', BASE .. 'orders', env .. ' n') or 0) > tonumber(ARGV[11]) then return {'orders'} end
end

local t = {status = status, epoch = rec.epoch, lease = 0, hold = '', summary = ARGV[10], op = ARGV[4], retention = ARGV[9], first = 19, keep = 12}
if status == 'running' and ARGV[7] ~= '0' then
  t.lease = NOW + ARGV[7]
  t.due = t.lease
elseif status == 'running' or status == 'queued' then
  t.due = NOW + ARGV[8]
  if t.due <= NOW then wake() end
elseif status == 'held' then
  t.hold, t.due = id, ARGV[15]
end
return {'ok', advance(rec, t), STAMP, rec.epoch, int(t.lease), rec.cancel}
