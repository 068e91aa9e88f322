-- Put before commit, decide and cancel. All checks are made before this.

-- keep stores the hold ARGV[a..a+6]: id, status, revision, expiry, creation,
-- agent, blob. It returns the number of the hold.
local function keep(env, a)
  local id, status = ARGV[a], ARGV[a + 1]
  local key = BASE .. 'h:' .. id
  local was, score = redis.call('HGET', key, 'm'), MICROS
  if was then
    was, score = string.match(was, '^%S+'), redis.call('ZSCORE', BASE .. 'holds:' .. env, id) or MICROS
  end
  redis.call('HSET', key, 'm', table.concat(ARGV, ' ', a + 1, a + 5), 'b', ARGV[a + 6])
  index('holds', env, id, score, was, status)
  return tonumber(string.match(id, '_(%d+)$'))
end

local function holdid(run, n) return 'h_' .. string.gsub(run, '^r_', '') .. '_' .. int(n) end

-- each calls f with every key of a run whose holds are numbered up to n.
local function each(run, n, f)
  f(BASE .. 'r:' .. run)
  f(BASE .. 'j:' .. run)
  f(BASE .. 's:r:' .. run)
  for i = 1, n do f(BASE .. 'h:' .. holdid(run, i)) end
end

-- retire removes what is left of up to ten runs whose retention is over.
local function retire()
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', BASE .. 'retire', '-inf', STAMP, 'LIMIT', 0, 10)) do
    local env, status, n, run = string.match(m, '^(.-):(.-):(%d+):(.*)$')
    for _, list in ipairs({':' .. env, ':' .. env .. ':' .. status}) do
      redis.call('ZREM', BASE .. 'runs' .. list, run)
    end
    for _, list in ipairs({':' .. env, ':' .. env .. ':decided', ':' .. env .. ':expired', ':' .. env .. ':cancelled'}) do
      for i = 1, n do redis.call('ZREM', BASE .. 'holds' .. list, holdid(run, i)) end
    end
    each(run, n, function(key) redis.call('UNLINK', key) end)
    redis.call('ZREM', BASE .. 'retire', m)
  end
end

-- expire starts the retention of a finished run. The idempotency key ends with it
-- by itself: later it may be another run's.
local function expire(rec, env, key, ms)
  if key ~= '' then redis.call('PEXPIRE', BASE .. 'k:' .. key, ms) end
  each(rec.run, rec.holds, function(k) redis.call('PEXPIRE', k, ms) end)
  redis.call('ZADD', BASE .. 'retire', NOW + ms, table.concat({env, rec.status, rec.holds, rec.run}, ':'))
  retire()
end

-- advance writes the record after a transition. t: status, count (entries
-- added), epoch, lease (its end, or 0), due (nil when finished), hold (id or ''),
-- holds (number of the newest), summary ('' keeps), op, retention (ms, '0' keeps
-- for ever).
local function advance(rec, t)
  local env, _, _, _, created, _, key = fixed(rec)
  local was, first = rec.status, int(rec.seq + 1)
  if t.count > 0 or t.lease == 0 then rec.idle = '0' end
  rec.status, rec.seq, rec.epoch = t.status, int(rec.seq + t.count), t.epoch
  rec.lease, rec.hold, rec.updated = int(t.lease), t.hold, STAMP
  if t.holds and t.holds > tonumber(rec.holds) then rec.holds = int(t.holds) end
  if t.summary ~= '' then rec.summary = t.summary end
  redis.call('HSET', BASE .. 'r:' .. rec.run, 'v', changing(rec), 's', rec.summary, 'o', remember(rec.ops, t.op, first, t.epoch))
  index('runs', env, rec.run, created, was, t.status)
  redis.call('PUBLISH', BASE .. 'w:' .. rec.run, '')
  if t.due then
    redis.call('ZADD', BASE .. 'due', t.due, rec.run)
  else
    redis.call('ZREM', BASE .. 'due', rec.run)
    if t.retention ~= '0' then expire(rec, env, key, t.retention) end
  end
  return first
end
