-- Tells what of a page does not fit the records.
-- KEYS: any key of the partition.
-- ARGV: 1 offset, 2 base, 3 what the page has: due, runs, holds or retire for
--   members of that list; s for the runs of such keys; k for idempotency keys. 4 env and 5 status of the list or '', 6.. the page.
-- Reply: rows of {run or '', number of a hold, env, idempotency key, member of
--   retire, or the id of a hold that names no run}.
local kind, env, status, rows = ARGV[3], ARGV[4], ARGV[5], {}
local function misfit(run, n, key, member) rows[#rows + 1] = {run, n or 0, env, key or '', member or ''} end

-- right reports whether a list may have a run, or a hold of it, that is so.
local function right(rec, run, is)
  if not rec then return leaving(run, env) end
  return fixed(rec) == env and is and (status == '' or status == is)
end

local look = {}
function look.due(run)
  local rec = record(run)
  if not rec or finished(rec.status) then misfit(run) end
end
function look.runs(run)
  local rec = record(run)
  if not right(rec, run, rec and rec.status) then misfit(run) end
end
function look.holds(id)
  local run, n = owner(id)
  if not run then return misfit('', 0, '', id) end
  if not right(record(run), run, string.match(hold(run, id) or '', '^%S+')) then misfit(run, n) end
end
function look.retire(member)
  local run = string.match(member, '^.-:.-:%d+:(.*)$')
  local rec = run and record(run)
  if rec and (not finished(rec.status) or noted(rec) ~= member) then misfit(run, 0, '', member) end
end
function look.s(run)
  if not record(run) then misfit(run) end
end
function look.k(key)
  local run = redis.call('GET', BASE .. 'k:' .. key)
  local rec = run and record(run)
  if run and not (rec and select(7, fixed(rec)) == key) then misfit(run, 0, key) end
end

for i = 6, #ARGV do look[kind](ARGV[i]) end
return rows
