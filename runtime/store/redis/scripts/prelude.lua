-- Put before every script. Every key made here starts with BASE, which has the
-- hash tag of the partition: a script never leaves its slot. No JSON is parsed.
-- ARGV[1] is added to the clock (ms; 0 outside tests), ARGV[2] is BASE.
local BASE = ARGV[2]
local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[1]
local MICROS = NOW * 1000 + clock[2] % 1000

local function int(n) return string.format('%.0f', n) end
local STAMP = int(NOW)

-- record reads a run, or nil when none can be read: what changes as strings, by
-- name; fixed, summary and ops as stored. lease is its end or '0', holds the number
-- of the newest hold, cancel who asked to cancel; times are in ms. Nothing that is
-- there in its place makes a script fail: other runs wait for it.
local STATUS = {queued = 1, running = 1, held = 1, completed = 1, failed = 1, cancelled = 1}
local function record(run)
  local r = redis.pcall('HMGET', BASE .. 'r:' .. run, 'f', 'v', 's', 'o')
  if r.err or not (r[1] and r[2]) or not string.find(r[1], '^%S* %S* %S* %S* %d+ %S* %S*$') then return nil end
  local rec = {run = run, fixed = r[1], summary = r[3] or '', ops = r[4] or ''}
  rec.status, rec.seq, rec.epoch, rec.idle, rec.lease, rec.hold, rec.holds, rec.updated, rec.cancel =
    string.match(r[2], '^(%l+) ([1-9]%d*) (%d+) (%d+) (%d+) (%S*) (%d+) (%d+) (%S*)$')
  return STATUS[rec.status or ''] and #rec.holds < 7 and rec or nil
end

-- there reports whether anything is kept for a run, readable or not.
local function there(run) return redis.call('EXISTS', BASE .. 'r:' .. run) == 1 end

-- fixed takes apart what never changes: env, agent, capability, session, creation
-- in microseconds (the score in the lists of runs), request, idempotency key.
local function fixed(rec)
  return string.match(rec.fixed, '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*)$')
end

-- changing is the inverse of record for what changes.
local function changing(rec)
  return table.concat({rec.status, rec.seq, rec.epoch, rec.idle, rec.lease, rec.hold, rec.holds, rec.updated, rec.cancel}, ' ')
end
-- answer is a record as it travels; {} for nil.
local function answer(rec) return rec and {rec.fixed, changing(rec), rec.summary} or {} end

local function finished(status) return status == 'completed' or status == 'failed' or status == 'cancelled' end

-- repeated finds op among the last operations of a run: {'again', first entry,
-- time, epoch, lease end, cancelled by} as it was answered, and whether it is the
-- newest; or nil. The lease end is 0 when the lease is over. WAIT needs the write.
local function repeated(rec, op)
  local first, last = string.find(rec.ops, ';' .. op .. ' ', 1, true)
  if op == '' or not first then return nil, false end
  local from, at, epoch = string.match(rec.ops, '^(%d+) (%d+) (%d+)', last + 1)
  redis.call('HSET', BASE .. 'r:' .. rec.run, 'o', rec.ops)
  return {'again', from, at, epoch, rec.epoch == epoch and rec.lease or '0', rec.cancel}, first == 1
end

-- remember puts an operation before the older ones; the last eight or so are kept.
local function remember(ops, op, from, epoch)
  if op == '' then return ops end
  ops = table.concat({';' .. op, from, STAMP, epoch}, ' ') .. ops
  if #ops <= 640 then return ops end
  return string.match(string.sub(ops, 1, 640), '^(.*);')
end

-- counted is how many entries a run has, should any be missing; journal reads those
-- after a place, '' where one is missing.
local function counted(rec)
  return math.min(tonumber(rec.seq), redis.call('HLEN', BASE .. 'r:' .. rec.run) - 4 - rec.holds)
end
local function journal(rec, after)
  local out = {}
  local last = math.min(tonumber(rec.seq), redis.call('HLEN', BASE .. 'r:' .. rec.run))
  for first = after + 1, last, 1000 do
    local names = {}
    for i = first, math.min(first + 999, last) do names[#names + 1] = int(i) end
    for _, e in ipairs(redis.call('HMGET', BASE .. 'r:' .. rec.run, unpack(names))) do out[#out + 1] = e or '' end
  end
  return out
end

-- field is where a run keeps the hold id; hold reads it, or false.
local function field(id) return 'h' .. (string.match(id, '_(%d+)$') or '') end
local function hold(run, id)
  local h = redis.pcall('HGET', BASE .. 'r:' .. run, field(id)) return type(h) == 'string' and h
end

-- store writes what changes in a run, the entries ARGV[first..], stamped and
-- numbered after seq, and more fields, in one command: a server that dies while it
-- writes its log keeps all of this or nothing, whatever it keeps of the indexes.
local function store(rec, ops, seq, first, ...)
  local fields = {'v', changing(rec), 's', rec.summary, 'o', ops, ...}
  for i = first, #ARGV do
    fields[#fields + 1] = int(seq + i - first + 1)
    fields[#fields + 1] = STAMP .. ARGV[i]
  end
  redis.call('HSET', BASE .. 'r:' .. rec.run, unpack(fields))
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
