-- Appends entries under a lease and moves the run on.
-- KEYS: run, due.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 1 to notify, 6 epoch, 7 status, 8 lease in ms,
--   9 due in ms from now, 10 retention in ms, 11 summary or '', 12 orders judged by
--   or '', 13 hold id or '', 14 hold status, 15 revision, 16 expiry, 17 creation,
--   18 agent, 19 blob, 20.. entries.
-- Reply: {'ok' | 'again', first entry, at, epoch, lease end, cancelled by};
--   {'lost'}: another epoch, no lease, or no run; {'hold', id}: the run waits on
--   another hold, which must be closed, or on none and the one given is old;
--   {'orders'}: there are newer ones;
--   {'damaged'}: entries or the hold are missing, which only lets the run finish.
local run, status = ARGV[3], ARGV[7]
local rec = record(run)
if not rec then return {there(run) and 'damaged' or 'lost'} end
local current = rec.epoch == ARGV[6] and rec.lease ~= '0'
local again, newest = repeated(rec, ARGV[4])
if again and (current or (newest and ARGV[8] == '0')) then return again end
if not current then return {'lost'} end
local pending, id = rec.hold, ARGV[13]
local found = pending ~= '' and hold(run, pending)
if found and pending ~= id then return {'hold', pending} end
if pending == '' and id ~= '' and (status ~= 'held' or tonumber(string.match(id, '_(%d+)$')) <= tonumber(rec.holds)) then return {'hold', ''} end
local whole = counted(rec) == tonumber(rec.seq) and (found or pending == '')
if not whole and not finished(status) then return {'damaged'} end
if ARGV[12] ~= '' then
  local env = fixed(rec)
  if tonumber(redis.call('HGET', BASE .. 'orders', env .. ' n') or 0) > tonumber(ARGV[12]) then return {'orders'} end
end

local t = {status = status, epoch = rec.epoch, lease = 0, hold = '', summary = ARGV[11], op = ARGV[4], notify = ARGV[5], retention = ARGV[10], first = 20, keep = 13}
if status == 'running' and ARGV[8] ~= '0' then
  t.lease = NOW + ARGV[8]
  t.due = t.lease
elseif status == 'running' or status == 'queued' then
  t.due = NOW + ARGV[9]
  if t.due <= NOW then wake() end
elseif status == 'held' then
  t.hold, t.due = id, ARGV[16]
end
return {'ok', advance(rec, t), STAMP, rec.epoch, int(t.lease), rec.cancel}
