-- Pushes the ends of leases.
-- KEYS: due, then the run of each lease.
-- ARGV: 1 offset, 2 base, 3 lease in ms, then run and epoch of each lease.
-- Reply: for each lease {its end, or 0 when it is lost; cancelled by}.
local rows, lease = {}, NOW + ARGV[3]
for i = 2, #KEYS do
  local run, epoch = ARGV[2 * i], ARGV[2 * i + 1]
  local rec = record(run)
  if rec and rec.epoch == epoch and rec.lease ~= '0' then
    rec.lease = int(lease)
    redis.call('HSET', KEYS[i], 'v', changing(rec))
    redis.call('ZADD', KEYS[1], lease, run)
    rows[#rows + 1] = {rec.lease, rec.cancel}
  else
    rows[#rows + 1] = {'0', rec and rec.cancel or ''}
  end
end
return rows
