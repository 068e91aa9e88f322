-- Put before fsck_run: idempotency keys, and the end of the retention.

-- checkkey looks at the idempotency key of the run, and at one that leads to it.
local function checkkey()
  local ttl, stray = redis.call('PTTL', BASE .. 'r:' .. run), ARGV[8]
  local to = rec and key ~= '' and (redis.call('GET', BASE .. 'k:' .. key) or '')
  if to and to ~= run then
    local other = to ~= '' and record(to)
    local taken = other and select(7, fixed(other)) == key
    find('key_missing', '', to == '' and 'it is not there' or 'it leads to ' .. to, not taken and function()
      redis.call('SET', BASE .. 'k:' .. key, run)
      if ttl > 0 then redis.call('PEXPIRE', BASE .. 'k:' .. key, ttl) end
    end)
  end
  if stray ~= '' and stray ~= key and redis.call('GET', BASE .. 'k:' .. stray) == run and (rec or redis.call('PTTL', BASE .. 'k:' .. stray) == -1) then
    find('key_stray', '', 'key ' .. stray, function() redis.call('DEL', BASE .. 'k:' .. stray) end)
  end
end

-- checkexpiry sees to it that a finished run expires as a whole and is noted for
-- that, and that no part of another run expires.
local function checkexpiry()
  local keys, kept, least, most, retire, member = {}, 0, math.huge, -1, BASE .. 'retire', noted(rec)
  each(run, function(k) keys[#keys + 1] = k end)
  if key ~= '' and redis.call('GET', BASE .. 'k:' .. key) == run then keys[#keys + 1] = BASE .. 'k:' .. key end
  for i = #keys, 1, -1 do
    local ttl = redis.call('PTTL', keys[i])
    if ttl == -2 then table.remove(keys, i) elseif ttl == -1 then kept = kept + 1 else least, most = math.min(least, ttl), math.max(most, ttl) end
  end
  local function expire(ms)
    for _, k in ipairs(keys) do redis.call('PEXPIRE', k, ms) end
    redis.call('ZADD', retire, NOW + ms, member)
  end
  if not done and most >= 0 then
    find('expiry_stray', '', 'in ' .. int(least) .. ' ms', function() for _, k in ipairs(keys) do redis.call('PERSIST', k) end end)
  elseif done and kept == #keys and ARGV[4] ~= '0' then
    find('expiry_missing', '', 'it is ' .. rec.status, function() expire(ARGV[4]) end)
  elseif done and kept < #keys and (kept > 0 or most - least > 1000) then
    find('expiry_uneven', '', kept .. ' parts never, others in ' .. int(least) .. ' to ' .. int(most) .. ' ms', function() expire(most) end)
  end
  local ttl, at = redis.call('PTTL', BASE .. 'r:' .. run), redis.call('ZSCORE', retire, member)
  local function note() redis.call('ZADD', retire, NOW + ttl, member) end
  if done and ttl > 0 and not at then find('retire_missing', '', 'it expires in ' .. ttl .. ' ms', note) end
  if done and ttl > 0 and at and math.abs(at - NOW - ttl) > 1000 then find('retire_stray', '', 'noted for ' .. at .. ', it expires at ' .. int(NOW + ttl), note) end
  if ARGV[9] ~= '' and (not done or ARGV[9] ~= member) and redis.call('ZSCORE', retire, ARGV[9]) then
    find('retire_stray', '', ARGV[9], function() redis.call('ZREM', retire, ARGV[9]) end)
  end
end
