-- Creates a run with its first entry, or answers from the run that is there.
-- KEYS: run, due, envs, runs of the env, runs of the env and status, and with an
--   idempotency key its index.
-- ARGV: 1 offset, 2 base, 3 run, 4 op, 5 request digest, 6 env, 7 agent,
--   8 capability, 9 session, 10 idempotency key or '', 11 summary, 12 lease in ms
--   or 0, 13 most queued runs or 0, 14 entry.
-- Reply: {'ok', 1, at, epoch, lease end, ''}: created;
--   {'again', 1, at, epoch, lease end, cancel, run, record, entry}: the same op;
--   {'exists', run, record, entry}: the same request before;
--   {'conflict', run}: another request; {'full'}: too many are queued;
--   {'damaged', run}: parts of it are missing or unreadable.
local run, op, key = ARGV[3], ARGV[4], ARGV[10]
local before = key ~= '' and redis.call('GET', KEYS[6]) or run
local rec = record(before)
if rec then
  local first = redis.call('HGET', BASE .. 'r:' .. before, '1')
  local again = repeated(rec, op)
  local _, _, _, _, _, request = fixed(rec)
  if request ~= ARGV[5] then return {'conflict', before} end
  if not first then return {'damaged'} end
  if not again then return {'exists', before, answer(rec), first} end
  again[7], again[8], again[9] = before, answer(rec), first
  return again
end
if there(before) or there(run) then return {'damaged', there(before) and before or run} end

local status, epoch, lease = 'queued', '0', '0'
if ARGV[12] ~= '0' then
  status, epoch, lease = 'running', '1', int(NOW + ARGV[12])
elseif ARGV[13] ~= '0' and redis.call('ZCARD', KEYS[5]) >= tonumber(ARGV[13]) then
  return {'full'}
end
rec = {run = run, summary = ARGV[11], status = status, seq = '1', epoch = epoch, idle = '0', lease = lease, hold = '', holds = '0', updated = STAMP, cancel = ''}
if key ~= '' then redis.call('SET', KEYS[6], run) end
store(rec, remember('', op, '1', epoch), 0, 14, 'f',
  table.concat({ARGV[6], ARGV[7], ARGV[8], ARGV[9], int(MICROS), ARGV[5], key}, ' '))
index('runs', ARGV[6], run, int(MICROS), nil, status)
redis.call('ZADD', KEYS[2], lease ~= '0' and lease or NOW, run)
redis.call('PUBLISH', BASE .. 'w:' .. run, '')
if lease == '0' then wake() end
return {'ok', '1', STAMP, epoch, lease, ''}
