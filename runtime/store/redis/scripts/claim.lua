-- Leases the runs that have been due longest. Keys of runs are known only here;
-- they carry the same hash tag.
-- KEYS: due.
-- ARGV: 1 offset, 2 base, 3 most runs wanted, 4 lease in ms.
-- Reply: rows of {run, was due at, lease end, lapsed (1: its lease ran out),
--   record, journal, hold or nil}. The journal is empty when parts of the run are missing;
--   a run without a record is answered as {run} and looked at again in an hour.
local rows = {}
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', STAMP, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
for i = 1, #due, 2 do
  local run, rec, lease = due[i], record(due[i]), NOW + ARGV[4]
  if not rec then
    redis.call('ZADD', KEYS[1], NOW + 3600000, run)
    rows[#rows + 1] = {run}
  elseif finished(rec.status) then
    redis.call('ZREM', KEYS[1], run)
  else
    local entries, pending, lapsed = journal(rec, 0), false, rec.lease ~= '0'
    if rec.status == 'held' then pending = hold(run, rec.hold) end
    if counted(rec) ~= tonumber(rec.seq) or (rec.status == 'held' and not pending) then entries = {} end
    if rec.status == 'queued' then
      local env, _, _, _, created = fixed(rec)
      index('runs', env, run, created, 'queued', 'running')
      rec.status = 'running'
    end
    rec.epoch, rec.idle, rec.lease = int(rec.epoch + 1), int(rec.idle + 1), int(lease)
    redis.call('HSET', BASE .. 'r:' .. run, 'v', changing(rec))
    redis.call('ZADD', KEYS[1], lease, run)
    rows[#rows + 1] = {run, due[i + 1], rec.lease, lapsed and 1 or 0, answer(rec), entries, pending}
  end
end
return rows
