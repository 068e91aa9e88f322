-- Put before commit, decide and cancel. All checks are made before this.

local function holdid(run, n) return 'h_' .. string.gsub(run, '^r_', '') .. '_' .. int(n) end

-- each calls f with every key of a run.
local function each(run, f)
  f(BASE .. 'r:' .. run)
  f(BASE .. 's:r:' .. run)
  f(BASE .. 't:' .. run)
end

-- notify has others told of the run, once nobody is at it. It comes before the
-- entries: should the server die within a script, one too many is harmless.
local function notify(run)
  local claimed = tonumber(redis.call('HGET', BASE .. 't:' .. run, 'c') or 0)
  redis.call('ZADD', BASE .. 'notices', claimed > NOW and claimed or STAMP, run)
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
    each(run, function(key) redis.call('UNLINK', key) end)
    redis.call('ZREM', BASE .. 'retire', m)
  end
end

-- expire starts the retention of a finished run. The idempotency key ends with it
-- by itself: later it may be another run's.
local function expire(rec, env, key, ms)
  if key ~= '' then redis.call('PEXPIRE', BASE .. 'k:' .. key, ms) end
  each(rec.run, function(k) redis.call('PEXPIRE', k, ms) end)
  redis.call('ZADD', BASE .. 'retire', NOW + ms, table.concat({env, rec.status, rec.holds, rec.run}, ':'))
  retire()
end

-- advance writes a transition. t: status, epoch, lease (its end, or 0), due (nil
-- when finished), hold (id of the pending one, or ''), summary ('' keeps), op,
-- retention (ms, '0' keeps for ever), notify ('1' to tell others), first (the place of
-- the entries in ARGV), and keep: the place of a hold to be stored, as id, status,
-- revision, expiry, creation, agent, blob; nil or an empty id for none.
local function advance(rec, t)
  local env, _, _, _, created, _, key = fixed(rec)
  if t.notify == '1' then notify(rec.run) end
  local was, seq, first, count, pending = rec.status, rec.seq, int(rec.seq + 1), #ARGV - t.first + 1, rec.hold
  local id = t.keep and ARGV[t.keep] or ''
  if count > 0 or t.lease == 0 then rec.idle = '0' end
  rec.status, rec.seq, rec.epoch = t.status, int(seq + count), t.epoch
  rec.lease, rec.hold, rec.updated = int(t.lease), t.hold, STAMP
  if t.summary ~= '' then rec.summary = t.summary end
  local ops = remember(rec.ops, t.op, first, t.epoch)
  if id == '' then
    store(rec, ops, seq, t.first)
  else
    local old, score = id == pending, MICROS
    local n = tonumber(string.match(id, '_(%d+)$'))
    if n > tonumber(rec.holds) then rec.holds = int(n) end
    if old then score = redis.call('ZSCORE', BASE .. 'holds:' .. env, id) or MICROS end
    store(rec, ops, seq, t.first, field(id), table.concat(ARGV, ' ', t.keep + 1, t.keep + 6))
    index('holds', env, id, score, old and 'pending' or nil, ARGV[t.keep + 1])
  end
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
