-- Reads all there is of a run, and compares indexes and expiries with it.
-- KEYS: run. The other keys are known only here.
-- ARGV: 1 offset, 2 base, 3 run, 4 retention in ms, 5 '1' to set indexes right;
--   where fsck came upon the run, or '': 6 number of a hold, 7 env,
--   8 idempotency key, 9 member of retire.
-- Reply: {record, journal, holds {id, hold}, findings {code, hold, what was
--   found, repaired}}.
local holds = {}

local function checkholds()
  for n = 1, count do
    local id = holdid(run, n)
    local found = rec and n <= tonumber(rec.holds) and hold(run, id)
    local status, made = string.match(found or '', '^(%S+) %S+ %S+ (%d+)')
    if found then holds[#holds + 1] = {id, found} end
    if status or not found then
      local score = made and redis.call('ZSCORE', BASE .. 'holds:' .. env, id) or made and int(made * 1000)
      places('holds', 'hold_list', id, id, status, score)
    end
  end
end

if not rec and redis.call('EXISTS', BASE .. 'r:' .. run) == 1 or rec and not created then
  return {{}, {}, {}, {{'record_damaged', '', 'fields are missing, or cannot be', 0}}}
end
places('runs', 'run_list', run, '', rec and rec.status, created)
checkholds()
checkdue()
checkkey()
if rec then
  if not known[env] then find('env_missing', '', env, function() redis.call('SADD', BASE .. 'envs', env) end) end
  if rec.lease ~= '0' and (done or rec.status == 'queued') then find('lease_stray', '', 'it is ' .. rec.status) end
  checkexpiry()
  return {answer(rec), journal(rec, 0), holds, findings}
end
local state = BASE .. 's:r:' .. run
if redis.call('PTTL', state) == -1 then find('state_orphan', '', redis.call('HLEN', state) .. ' values') end
return {{}, {}, {}, findings}
