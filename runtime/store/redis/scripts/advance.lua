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

-- advance writes the record after a transition. t: status, count (entries
-- added), epoch, lease (its end, or 0), due, hold (id or ''), holds (number of
-- the newest), summary ('' keeps), op, retention (ms, '0' keeps for ever).
local function advance(run, rec, t)
  local key, env = BASE .. 'r:' .. run, rec[ENV]
  local holds = math.max(t.holds or 0, tonumber(rec[HOLDS] or 0))
  redis.call('HSET', key, 'st', t.status, 'n', int(rec[SEQ] + t.count), 'ep', t.epoch, 'x', int(t.lease),
    'h', t.hold, 'hn', int(holds), 'i', t.count > 0 and '0' or rec[IDLE], 'ua', STAMP,
    'sm', t.summary ~= '' and t.summary or rec[SUMMARY] or '',
    'op', remember(rec[OPS], t.op, int(rec[SEQ] + 1), t.epoch))
  index('runs', env, run, rec[CREATED], rec[STATUS], t.status)
  redis.call('PUBLISH', BASE .. 'w:' .. run, '')
  if t.due then return redis.call('ZADD', BASE .. 'due', t.due, run) end
  redis.call('ZREM', BASE .. 'due', run)
  if t.retention == '0' then return end
  each(run, holds, function(k) redis.call('PEXPIRE', k, t.retention) end)
  redis.call('ZADD', BASE .. 'retire', NOW + t.retention, table.concat({env, t.status, int(holds), run}, ':'))
  retire()
end
