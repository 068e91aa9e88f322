-- Reads all there is of a run, and compares indexes and expiries with it.
-- KEYS: run. The other keys are known only here.
-- ARGV: 1 offset, 2 base, 3 run, 4 retention in ms, 5 '1' to set indexes right;
--   where fsck came upon the run, or '': 6 number of a hold, 7 env,
--   8 idempotency key, 9 member of retire.
-- Reply: {record, journal, holds {id, meta, blob}, findings {code, hold, what was
--   found, repaired}}.
local holds = {}

local function checkholds()
  local n = 1
  repeat
    local id = holdid(run, n)
    local there = redis.call('EXISTS', BASE .. 'h:' .. id) == 1
    local hold = redis.call('HMGET', BASE .. 'h:' .. id, 'm', 'b')
    local status, made = string.match(hold[1] or '', '^(%S+) %S+ %S+ (%d+)')
    if there and rec then holds[#holds + 1] = {id, hold[1] or '', hold[2] or ''} end
    if there and not rec and redis.call('PTTL', BASE .. 'h:' .. id) == -1 then find('hold_orphan', id, status or 'it cannot be read') end
    if status or not there then
      local score = made and env and redis.call('ZSCORE', BASE .. 'holds:' .. env, id) or made and int(made * 1000)
      places('holds', 'hold_list', id, id, rec and status, score)
    end
    n = n + 1
  until n > count and not there
  count = n - 1
end

local function orphan(code, key, size, what)
  if redis.call('PTTL', key) == -1 then find(code, '', redis.call(size, key) .. what) end
end

if not rec and redis.call('EXISTS', BASE .. 'r:' .. run) == 1 or rec and not (created and rec.status) then
  return {{}, {}, {}, {{'record_damaged', '', 'fields are missing', 0}}}
end
places('runs', 'run_list', run, '', rec and rec.status, created)
checkholds()
checkdue()
checkkey()
if rec then
  if not known[env] then find('env_missing', '', env, function() redis.call('SADD', BASE .. 'envs', env) end) end
  if rec.lease ~= '0' and (done or rec.status == 'queued') then find('lease_stray', '', 'it is ' .. rec.status) end
  checkexpiry()
  return {answer(rec), redis.call('LRANGE', BASE .. 'j:' .. run, 0, -1), holds, findings}
end
orphan('journal_orphan', BASE .. 'j:' .. run, 'LLEN', ' entries')
orphan('state_orphan', BASE .. 's:r:' .. run, 'HLEN', ' values')
return {{}, {}, {}, findings}
