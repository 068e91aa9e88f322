-- Pushes the ends of leases.
-- KEYS: due, then the run of each lease.
-- ARGV: 1 offset, 2 base, 3 lease in ms, then run and epoch of each lease.
-- Reply: for each lease {its end, or 0 when it is lost; cancelled by}.
local rows, lease = {}, NOW + ARGV[3]
for i = 2, #KEYS do
  local run, epoch = ARGV[2 * i], ARGV[2 * i + 1]
  local rec = redis.call('HMGET', KEYS[i], 'ep', 'x', 'cb')
  if rec[1] == epoch and rec[2] ~= '0' then
    redis.call('HSET', KEYS[i], 'x', int(lease))
    redis.call('ZADD', KEYS[1], lease, run)
    rows[#rows + 1] = {int(lease), rec[3] or ''}
  else
    rows[#rows + 1] = {'0', rec[3] or ''}
  end
end
return rows
