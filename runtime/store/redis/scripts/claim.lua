-- Leases the runs that have been due longest. Keys of runs are known only here;
-- they carry the same hash tag.
-- KEYS: due.
-- ARGV: 1 offset, 2 base, 3 most runs wanted, 4 lease in ms.
-- Reply: rows of {run, was due at, lease end, lapsed (1: its lease ran out),
--   record, journal, hold blob or nil}. The journal is empty when parts of the run are missing;
--   a run without a record is answered as {run} and looked at again in an hour.
local rows = {}
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', STAMP, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
for i = 1, #due, 2 do
  local run, rec, lease = due[i], record(due[i]), NOW + ARGV[4]
  local status, lapsed = rec[STATUS], rec[LEASE] and rec[LEASE] ~= '0'
  if not rec[SEQ] then
    redis.call('ZADD', KEYS[1], NOW + 3600000, run)
    rows[#rows + 1] = {run}
  elseif status == 'completed' or status == 'failed' or status == 'cancelled' then
    redis.call('ZREM', KEYS[1], run)
  else
    local journal, hold = redis.call('LRANGE', BASE .. 'j:' .. run, 0, -1), false
    if status == 'held' then hold = redis.call('HGET', BASE .. 'h:' .. rec[HOLD], 'b') end
    if #journal ~= tonumber(rec[SEQ]) or (status == 'held' and not hold) then journal = {} end
    if status == 'queued' then
      index('runs', rec[ENV], run, rec[CREATED], status, 'running')
      rec[STATUS] = 'running'
    end
    rec[EPOCH], rec[IDLE] = int(rec[EPOCH] + 1), int(rec[IDLE] + 1)
    redis.call('HSET', BASE .. 'r:' .. run, 'st', rec[STATUS], 'ep', rec[EPOCH], 'i', rec[IDLE], 'x', int(lease))
    redis.call('ZADD', KEYS[1], lease, run)
    rows[#rows + 1] = {run, due[i + 1], int(lease), lapsed and 1 or 0, rec, journal, hold}
  end
end
return rows
