-- Appends entries under a lease and moves the run on.
-- KEYS: run, journal, due, hold (the run again when there is none).
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 epoch, 6 status, 7 lease in ms,
--   8 due in ms from now, 9 retention in ms, 10 summary or '', 11 hold id or '',
--   12 hold status, 13 revision, 14 expiry, 15 creation, 16 agent, 17 blob,
--   18.. entries.
-- Reply: {'ok' | 'again', first entry, at, epoch, lease end, cancelled by};
--   {'lost'}: another epoch, no lease, or no run; {'hold', id}: the run waits on
--   another hold, which must be closed, or on none and the one given is old;
--   {'damaged'}: entries or the hold are missing, which only lets the run finish.
local run, status = ARGV[3], ARGV[6]
local finished = status == 'completed' or status == 'failed' or status == 'cancelled'
local rec = record(run)
local length = redis.call('LLEN', KEYS[2])
if not rec[SEQ] then return {length > 0 and 'damaged' or 'lost'} end
local current = rec[EPOCH] == ARGV[5] and rec[LEASE] ~= '0'
local again, newest = repeated(run, rec, ARGV[4])
if again and (current or (newest and ARGV[7] == '0')) then return again end
if not current then return {'lost'} end
local pending, id = rec[HOLD] or '', ARGV[11]
local there = pending ~= '' and redis.call('EXISTS', BASE .. 'h:' .. pending) == 1
if there and pending ~= id then return {'hold', pending} end
if pending == '' and id ~= '' and (status ~= 'held' or redis.call('EXISTS', KEYS[4]) == 1) then return {'hold', ''} end
local whole = length == tonumber(rec[SEQ]) and (there or pending == '')
if not whole and not finished then return {'damaged'} end

local t = {status = status, epoch = rec[EPOCH], lease = 0, hold = '', summary = ARGV[10], op = ARGV[4], retention = ARGV[9]}
t.count = append(run, 18)
if id ~= '' then t.holds = keep(rec[ENV], 11) end
if status == 'running' and ARGV[7] ~= '0' then
  t.lease = NOW + ARGV[7]
  t.due = t.lease
elseif status == 'running' or status == 'queued' then
  t.due = NOW + ARGV[8]
  if t.due <= NOW then wake() end
elseif status == 'held' then
  t.hold, t.due = id, ARGV[14]
end
advance(run, rec, t)
return {'ok', int(rec[SEQ] + 1), STAMP, rec[EPOCH], int(t.lease), rec[CANCEL] or ''}
