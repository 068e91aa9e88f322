-- Creates a run with its first entry, or answers from the run that is there.
-- KEYS: run, journal, due, envs, runs of the env, runs of the env and status.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 request digest, 6 env, 7 agent,
--   8 capability, 9 session, 10 summary, 11 lease in ms or 0, 12 entry.
-- Reply: {'ok', 1, at, epoch, lease end, ''}: created;
--   {'again', 1, at, epoch, lease end, cancel, record, entry}: the same op;
--   {'exists', record, entry}: the same request before;
--   {'conflict'}: another request; {'damaged'}: parts of it are missing.
local run, op = ARGV[3], ARGV[4]
local rec = record(run)
local first = redis.call('LINDEX', KEYS[2], 0)
if rec[SEQ] then
  local again = repeated(run, rec, op)
  if rec[REQUEST] ~= ARGV[5] then return {'conflict'} end
  if not first then return {'damaged'} end
  if not again then return {'exists', rec, first} end
  again[7], again[8] = rec, first
  return again
end
if first then return {'damaged'} end

local status, epoch, lease = 'queued', '0', 0
if ARGV[11] ~= '0' then status, epoch, lease = 'running', '1', NOW + ARGV[11] end
redis.call('HSET', KEYS[1], 'e', ARGV[6], 'a', ARGV[7], 'c', ARGV[8], 's', ARGV[9], 'sm', ARGV[10], 'q', ARGV[5],
  'st', status, 'n', '1', 'ep', epoch, 'i', '0', 'x', int(lease), 'ca', int(MICROS), 'ua', STAMP,
  'op', remember('', op, '1', epoch))
append(run, 12)
index('runs', ARGV[6], run, int(MICROS), nil, status)
redis.call('ZADD', KEYS[3], lease > 0 and lease or NOW, run)
redis.call('PUBLISH', BASE .. 'w:' .. run, '')
if lease == 0 then wake() end
return {'ok', '1', STAMP, epoch, int(lease), ''}
