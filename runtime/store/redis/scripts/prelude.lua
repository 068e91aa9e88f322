-- Put before every script. Every key made here starts with BASE, which has the
-- hash tag of the partition: a script never leaves its slot. No JSON is parsed.
-- ARGV[1] is added to the clock (ms; 0 outside tests), ARGV[2] is BASE.
local BASE = ARGV[2]
local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[1]
local MICROS = NOW * 1000 + clock[2] % 1000

-- The fields of a record, in the order they travel. CREATED is in microseconds
-- and the score in the indexes of runs; the other times are in ms.
local ENV, AGENT, CAPABILITY, SESSION, STATUS, SEQ, EPOCH, IDLE = 1, 2, 3, 4, 5, 6, 7, 8
-- LEASE is its end or '0', HOLDS the number of the newest hold.
local HOLD, CANCEL, SUMMARY, CREATED, LEASE, OPS, HOLDS, REQUEST = 9, 10, 11, 12, 14, 15, 16, 17

local function int(n) return string.format('%.0f', n) end
local STAMP = int(NOW)
local function record(run)
  return redis.call('HMGET', BASE .. 'r:' .. run, 'e', 'a', 'c', 's', 'st', 'n', 'ep', 'i',
    'h', 'cb', 'sm', 'ca', 'ua', 'x', 'op', 'hn', 'q')
end

-- repeated finds op among the last operations of a run: {'again', first entry,
-- time, epoch, lease end, cancelled by} as it was answered, and whether it is the
-- newest; or nil. The lease end is 0 when the lease is over. WAIT needs the write.
local function repeated(run, rec, op)
  local first, last = string.find(rec[OPS] or '', ';' .. op .. ' ', 1, true)
  if op == '' or not first then return nil, false end
  local from, at, epoch = string.match(rec[OPS], '^(%d+) (%d+) (%d+)', last + 1)
  redis.call('HSET', BASE .. 'r:' .. run, 'op', rec[OPS])
  return {'again', from, at, epoch, rec[EPOCH] == epoch and rec[LEASE] or '0', rec[CANCEL] or ''}, first == 1
end

-- remember puts an operation before the older ones; the last eight or so are kept.
local function remember(ops, op, from, epoch)
  if op == '' then return ops or '' end
  ops = table.concat({';' .. op, from, STAMP, epoch}, ' ') .. (ops or '')
  if #ops <= 640 then return ops end
  return string.match(string.sub(ops, 1, 640), '^(.*);')
end

-- append stamps the entries ARGV[first..] and adds them to the journal.
local function append(run, first)
  for i = first, #ARGV do redis.call('RPUSH', BASE .. 'j:' .. run, STAMP .. ARGV[i]) end
  return #ARGV - first + 1
end

-- index moves id to the list of its new status; from is nil for a new id.
local function index(kind, env, id, score, from, to)
  local list = BASE .. kind .. ':' .. env
  if not from then
    redis.call('SADD', BASE .. 'envs', env)
    redis.call('ZADD', list, score, id)
  elseif from ~= to then
    redis.call('ZREM', list .. ':' .. from, id)
  end
  if from ~= to then redis.call('ZADD', list .. ':' .. to, score, id) end
end

-- wake tells idle workers that a run has become due.
local function wake() redis.call('PUBLISH', string.match(BASE, '^[^{]*') .. 'wake', '') end
