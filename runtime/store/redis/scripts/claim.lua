-- Leases the runs that have been due longest. Keys of runs are known only here;
-- they carry the same hash tag.
-- KEYS: due, aside.
-- ARGV: 1 offset, 2 base, 3 most runs wanted, 4 lease in ms.
-- Reply: rows of {run, was due at, lease end, lapsed (1: its lease ran out),
--   record, journal, hold or nil}. The journal is empty when parts of the run are missing;
--   a run whose record is missing or unreadable is answered as {run}, noted in aside
--   and looked at again in an hour.
local rows = {}

-- early returns the time before which nobody may take the run: the end of its
-- lease, or the expiry of its hold. The index only says when to look.
local function early(rec, pending)
  local at = rec.lease ~= '0' and rec.lease or pending and string.match(pending, '^%l+ %d+ (%d+) ')
  return at and tonumber(at) > NOW and at
end

local function take(run, due)
  local rec, lease = record(run), NOW + ARGV[4]
  if not rec then
    redis.call('ZADD', KEYS[1], NOW + 3600000, run)
    redis.call('ZADD', KEYS[2], NOW, run)
    rows[#rows + 1] = {run}
    return
  end
  if finished(rec.status) then return redis.call('ZREM', KEYS[1], run) end
  local pending = rec.status == 'held' and hold(run, rec.hold)
  local wait = early(rec, pending)
  if wait then return redis.call('ZADD', KEYS[1], wait, run) end
  local entries, lapsed = {}, rec.lease ~= '0'
  if counted(rec) == tonumber(rec.seq) and (rec.status ~= 'held' or pending) then entries = journal(rec, 0) end
  if rec.status == 'queued' then
    local env, _, _, _, created = fixed(rec)
    index('runs', env, run, created, 'queued', 'running')
    rec.status = 'running'
  end
  rec.epoch, rec.idle, rec.lease = int(rec.epoch + 1), int(rec.idle + 1), int(lease)
  redis.call('HSET', BASE .. 'r:' .. run, 'v', changing(rec))
  redis.call('ZADD', KEYS[1], lease, run)
  rows[#rows + 1] = {run, due, rec.lease, lapsed and 1 or 0, answer(rec), entries, pending}
end

local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', STAMP, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
for i = 1, #due, 2 do take(due[i], due[i + 1]) end
return rows
