// What the scripts of the native layout share.
#include "engines/redis/scripts.hpp"

namespace holdfast::engines::redis::scripts {

// What the scripts of one lock share. KEYS: hf:l:NAME, hf:t. A script calls open() first and close() last; in between
// it changes holders and queue through the functions here.
//
// The first write of every path that takes something is an INCR: a server that refuses writes for lack of memory
// refuses it before anything was changed. Paths that give something back begin with without_memory() and are not
// refused.
const std::string_view library = R"lua(
local call = redis.call
local L, T = KEYS[1], KEYS[2]
local P = string.sub(T, 1, -2)
local name = string.sub(L, #P + 3)
local H, E, Q = P .. 'h:' .. name, P .. 'e:' .. name, P .. 'q:' .. name
local W, O = P .. 'w:' .. name, P .. 'o:' .. name
local clock = call('TIME')
local us = clock[1] * 1000000 + clock[2]
local now = math.floor(us / 1000)
local whole = 1073741824
local patience = 15000
local capacity, version, used, touched, granted = nil, '0', 0, false, false
local text = function(n) return string.format('%.0f', n) end

-- In a cluster there is a counter for each tag, {42}, and none is brought up to the clock when a connection begins: so
-- every token is.
local is_tagged = string.sub(T, -2) == '}t'
local least = is_tagged and us or 1e15

-- draw() as the first write of a path that needs memory; the number is used by the next grant.
local spare
local function draw()
  local t = call('INCR', T)
  if t < least then t = us; call('SET', T, text(us)) end
  spare = text(t)
end
local function next_token()
  if not spare then draw() end
  local t = spare
  spare = nil
  return t
end

-- A server that has no memory left judges a script by its first write, and refuses no DEL.
-- While a slot moves, a key that is not there is refused.
local function without_memory() redis.pcall('DEL', P .. 'x:') end

local function publish(owner, message)
  return call('PUBLISH', P .. 'c:' .. string.sub(owner, 1, 32), message)
end

-- The compact form becomes the full one: another client is interested. What is left of a lock of which a part was
-- evicted or deleted ends here: its holders find that out when they renew, its waiters when they ask again.
local function open(v)
  if not v or string.byte(v) == 120 then call('DEL', H, E, Q, W, O) end
  if not v then return true end
  local owner, token, ttl, rest = string.match(v, '^x(%S+) (%d+) (%d+) (.*)$')
  if owner then
    capacity, used, version = whole, whole, token
    call('HSET', H, '#', text(whole), owner, 'x ' .. text(whole) .. ' ' .. token .. ' ' .. ttl .. ' ' .. rest)
    call('ZADD', E, text(now + call('PTTL', L)), owner)
    return true
  end
  local c, g = string.match(v, '^m(%d+) (%d+)$')
  if not c then return false end
  capacity, version = tonumber(c), g
  used = tonumber(call('HGET', H, '#') or '0')
  if (used > 0) ~= (call('EXISTS', E) == 1) then
    call('DEL', H, E)
    used, touched = 0, true
  end
  if call('EXISTS', Q, W) == 1 then call('DEL', Q, W) end
  return true
end

local function weight_of(record) return tonumber(string.match(record, '^%S+ (%d+)')) end

local function drop(owner, why)
  local record = call('HGET', H, owner)
  if not record then return nil end
  call('HDEL', H, owner, '<' .. owner)
  call('ZREM', E, owner)
  used = used - weight_of(record)
  touched = true
  if why then publish(owner, 'l ' .. owner .. ' ' .. why) end
  return record
end

-- Some of them: the next script finds others, and the first waiter asks again at once as long as any is left.
local function expire()
  for _, owner in ipairs(call('ZRANGEBYSCORE', E, '-inf', text(now), 'LIMIT', 0, 128)) do drop(owner, 'expired') end
end

local function is_held(owner)
  local ends = call('ZSCORE', E, owner)
  return ends and tonumber(ends) > now
end

-- A client listens to its channel for as long as its process lives. The first waiter that finds no listener writes down
-- when; a waiter that finds the same a grace later may drop it. A client that comes back removes the note (see the
-- greeting); in a cluster, where it would have to do so for every tag, the next waiter does, and the note does not live
-- long.
local found = {}
local function is_gone(owner, grace)
  if grace == 0 then return false end
  local client = string.sub(owner, 1, 32)
  if found[client] == nil then
    found[client] = false
    if call('PUBSUB', 'NUMSUB', P .. 'c:' .. client)[2] == 0 then
      local since = call('GET', P .. 'g:' .. client)
      if since then
        found[client] = now - tonumber(since) >= grace
      else
        call('SET', P .. 'g:' .. client, text(now), 'PX', text(is_tagged and grace + 5000 or grace * 10))
      end
    elseif is_tagged then
      call('DEL', P .. 'g:' .. client)
    end
  end
  return found[client]
end

local function drop_absent()
  for _, owner in ipairs(call('ZRANGE', E, 0, 7)) do
    local grace = string.match(call('HGET', H, owner), '^%S+ %d+ %d+ %d+ (%d+)')
    if is_gone(owner, tonumber(grace)) then drop(owner) end
  end
end

local function waiter(owner)
  local record = call('HGET', W, owner)
  if not record then return nil end
  local w = {}
  w.mode, w.weight, w.ttl, w.priority, w.replaces, w.member, w.rest =
    string.match(record, '^(%S+) (%d+) (%d+) (%-?%d+) (%S+) (%S+) (.*)$')
  w.weight = tonumber(w.weight)
  return w
end

-- How long a waiter's client may be gone before its place is; a waiter without a grace has as long as a queue is kept.
local function grace_of(w)
  local grace = tonumber(string.match(w.rest, '^%d+') or '0')
  return grace > 0 and grace or patience
end

local function unqueue(owner, w)
  call('HDEL', W, owner)
  call('ZREM', Q, w.member)
end

local function admit(owner, token, w)
  if w.replaces ~= '-' then
    local old = drop(w.replaces)
    call('HSET', H, '<' .. owner, w.replaces .. ' ' .. old)
  end
  call('HSET', H, owner, w.mode .. ' ' .. text(w.weight) .. ' ' .. token .. ' ' .. w.ttl .. ' ' .. w.rest)
  call('ZADD', E, text(now + tonumber(w.ttl)), owner)
  used = used + w.weight
  version = token
  granted, touched = true, true
end

local function freed_by(w)
  if w.replaces == '-' then return 0 end
  local old = call('HGET', H, w.replaces)
  return old and weight_of(old) or nil
end

-- Lets in the waiters that fit, from the head of the queue. The message is the grant; where no client hears it, the
-- waiter is gone. A waiter that does not fit keeps all others waiting, so it is asked whether it is still there. `me`
-- is the owner that asks, and has the answer instead.
local function serve(me)
  while used < (capacity or 0) do
    local head = call('ZRANGE', Q, 0, 0)[1]
    if not head then return end
    local owner = string.sub(head, 17)
    local w = waiter(owner)
    local freed = freed_by(w)
    if not freed then
      unqueue(owner, w)
      publish(owner, 'n ' .. owner)
    elseif used - freed + w.weight > capacity then
      if owner == me or not is_gone(owner, grace_of(w)) then return end
      unqueue(owner, w)
    else
      unqueue(owner, w)
      local token = next_token()
      local grant = table.concat({'g', owner, token, w.ttl, text(us), w.mode, text(w.weight)}, ' ')
      if owner == me or publish(owner, grant) > 0 then admit(owner, token, w) end
    end
  end
end

local function tell_observers()
  local all = call('HGETALL', O)
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) < now or call('PUBLISH', P .. 'c:' .. all[i], 'o ' .. name) == 0 then
      call('HDEL', O, all[i])
    end
  end
end

-- All keys of the lock end together, with the last holder, waiter or observer of it.
local function close()
  if touched then
    if used == 0 then version = '0' elseif not granted then version = next_token() end
    call('HSET', H, '#', text(used))
    tell_observers()
  end
  local last = call('ZREVRANGE', E, 0, 0, 'WITHSCORES')[2]
  local keep = last and tonumber(last) or 0
  if call('EXISTS', Q, O) > 0 then keep = math.max(keep, now + patience) end
  if keep <= now then
    call('DEL', L, H, E, Q, W, O)
    return
  end
  call('SET', L, 'm' .. text(capacity) .. ' ' .. version, 'PX', text(keep - now))
  for _, key in ipairs({H, E, Q, W, O}) do call('PEXPIREAT', key, text(keep)) end
end

-- When a waiter should ask again although nothing was heard: at the time the first holder's grant ends, and often
-- enough to notice a dead holder or a dead waiter before it (the first in the queue most often, so that many waiters
-- do not ask many times).
local function recheck(member)
  local rank = call('ZRANK', Q, member) or 0
  local first = call('ZRANGE', E, 0, 0, 'WITHSCORES')
  local wait = 5000
  if first[1] then
    wait = math.min(wait, tonumber(first[2]) - now + 1 + rank)
    local record = call('HGET', H, first[1])
    local grace = tonumber(string.match(record, '^%S+ %d+ %d+ %d+ (%d+)'))
    if grace > 0 then wait = math.min(wait, math.ceil(grace / 4) * (rank + 1)) end
  end
  if rank > 0 then
    local ahead = waiter(string.sub(call('ZRANGE', Q, 0, 0)[1], 17))
    if ahead then wait = math.min(wait, math.ceil(grace_of(ahead) / 4) * (rank + 1)) end
  end
  return math.max(wait, 2)
end
)lua";

const std::string_view lift =
    "local c = redis.call('TIME') "
    "local us = c[1] * 1000000 + c[2] "
    "if tonumber(redis.call('GET', KEYS[1]) or '0') < us then "
    "local done = redis.pcall('SET', KEYS[1], string.format('%.0f', us)) "
    "if done.err then if string.find(done.err, 'OOM', 1, true) then redis.call('DEL', KEYS[1]) "
    "else return done end end end "
    "return redis.status_reply('OK')";

}  // namespace holdfast::engines::redis::scripts
