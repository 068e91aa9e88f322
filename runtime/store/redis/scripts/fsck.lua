-- Put before the scripts of fsck.

-- leaving reports whether a run that has no record is one whose retention is over
-- and whose places in the lists of env have not been taken out yet. Few runs have
-- more than eight holds; for them the whole list is looked through.
local function leaving(run, env)
  local list = BASE .. 'retire'
  for _, status in ipairs({'completed', 'failed', 'cancelled'}) do
    for n = 0, 8 do
      if redis.call('ZSCORE', list, table.concat({env, status, n, run}, ':')) then return true end
    end
  end
  local from, page = 0, nil
  repeat
    page = redis.call('ZRANGEBYSCORE', list, '-inf', NOW + 1000, 'LIMIT', from, 1000)
    for _, member in ipairs(page) do
      if string.sub(member, -#run - 1) == ':' .. run then return true end
    end
    from = from + 1000
  until #page < 1000
  return false
end

-- owner returns the run and the number of a hold, or nil.
local function owner(hold)
  local rest, n = string.match(hold, '^h_(.+)_(%d+)$')
  if rest then return 'r_' .. rest, tonumber(n) end
end

-- noted is what the list of retirements has of a finished run.
local function noted(rec) return table.concat({(fixed(rec)), rec.status, rec.holds, rec.run}, ':') end
