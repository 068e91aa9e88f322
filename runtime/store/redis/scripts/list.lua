-- Put before the scripts that list: walks an index from the newest to the oldest.

-- position returns the rank of the first member after (score, id), newest first.
local function position(list, score, id)
  if score == '' then return 0 end
  local low = redis.call('ZCOUNT', list, '(' .. score, '+inf')
  local high = redis.call('ZCOUNT', list, score, '+inf')
  while low < high do
    local middle = math.floor((low + high) / 2)
    if id == '' or redis.call('ZREVRANGE', list, middle, middle)[1] >= id then low = middle + 1 else high = middle end
  end
  return low
end

-- unread are the runs whose record walk came upon and could not read. They are left
-- out, and stay in the list.
local unread = {}
local function skip(run) unread[#unread + 1] = run end

-- walk shows members to visit(id) until it returned limit rows, a thousand were
-- looked at, or none are left. A member visit answers with false is gone and
-- dropped from the list. It returns {rows, score and id of the place to go on
-- from, or '' and '' at the end, unread}.
local function walk(list, score, id, limit, visit)
  local rows, gone, rank, looked = {}, {}, position(list, score, id), 0
  repeat
    local members = redis.call('ZREVRANGE', list, rank, rank + 99, 'WITHSCORES')
    for i = 1, #members, 2 do
      local row = visit(members[i])
      if row then rows[#rows + 1] = row elseif row == false then gone[#gone + 1] = members[i] end
      rank, looked, score, id = rank + 1, looked + 1, members[i + 1], members[i]
      if #rows == limit then break end
    end
  until #members < 200 or #rows == limit or looked >= 1000
  if rank >= redis.call('ZCARD', list) then score, id = '', '' end
  for _, member in ipairs(gone) do redis.call('ZREM', list, member) end
  return {rows, score, id, unread}
end
