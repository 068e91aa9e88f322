-- Put before fsck_run: the indexes that a run and its holds are in.
local run, repair = ARGV[3], ARGV[5] == '1'
local rec, findings = record(run), {}
local env, created, key, done
-- count is the number of the last hold there may be.
local count = math.max(tonumber(ARGV[6]) or 0, tonumber(rec and rec.holds) or 0)
if rec then
  local parts = {fixed(rec)}
  env, created, key, done = parts[1], parts[5], parts[7], finished(rec.status)
end

-- superseded: the key leads to another run, which was made in its place when Redis
-- had lost this one. It must not come to life.
local superseded = key and key ~= '' and (redis.call('GET', BASE .. 'k:' .. key) or run) ~= run

local function find(code, hold, what, fix)
  if repair and fix then fix() end
  findings[#findings + 1] = {code, hold, what, repair and fix and 1 or 0}
end

-- The environments whose lists are looked at, and whether the run's is known.
local envs, known = redis.call('SMEMBERS', BASE .. 'envs'), {}
for _, e in ipairs(envs) do known[e] = true end
for _, e in ipairs({env or '', ARGV[7]}) do
  if e ~= '' and not known[e] and e ~= envs[#envs] then envs[#envs + 1] = e end
end

local STATUSES = {
  runs = {'', ':queued', ':running', ':held', ':completed', ':failed', ':cancelled'},
  holds = {'', ':pending', ':decided', ':expired', ':cancelled'},
}

-- places checks that id is in the lists of its env and status, and in no other;
-- status is nil when it belongs in none. Runs are listed by their creation.
local function places(kind, code, id, hold, status, score)
  local lost, wrong, want = {}, {}, {}
  for _, e in ipairs(envs) do
    for _, s in ipairs(STATUSES[kind]) do
      local list = kind .. ':' .. e .. s
      local at = redis.call('ZSCORE', BASE .. list, id)
      want[list] = status and e == env and (s == '' or s == ':' .. status)
      if want[list] and not at then
        lost[#lost + 1] = list
      elseif at and not want[list] and (rec or not leaving(run, e)) or at and want[list] and kind == 'runs' and tonumber(at) ~= tonumber(score) then
        wrong[#wrong + 1] = list
      end
    end
  end
  for suffix, lists in pairs({_missing = lost, _stray = wrong}) do
    if #lists > 0 then
      find(code .. suffix, hold, table.concat(lists, ', '), function()
        for _, list in ipairs(lists) do
          if want[list] then redis.call('ZADD', BASE .. list, score, id) else redis.call('ZREM', BASE .. list, id) end
        end
      end)
    end
  end
end

local function checkdue()
  local due = redis.call('ZSCORE', BASE .. 'due', run)
  if not rec or done then
    if due then
      find('due_stray', '', rec and 'it is ' .. rec.status or 'it has no record', function() redis.call('ZREM', BASE .. 'due', run) end)
    end
    return
  end
  local want = rec.lease ~= '0' and rec.lease
    or rec.hold ~= '' and string.match(hold(run, rec.hold) or '', '^%S+ %S+ (%d+)')
  local function fix() redis.call('ZADD', BASE .. 'due', want or NOW, run) end
  if not due then
    find('due_missing', '', 'it is ' .. rec.status, not superseded and fix)
  elseif want and tonumber(want) ~= tonumber(due) then
    find('due_time', rec.hold, 'it is due at ' .. due .. ' and should be at ' .. want, fix)
  end
end
