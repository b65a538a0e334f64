#include "engines/redis/scripts.hpp"

#include <openssl/evp.h>

#include <array>
#include <cstddef>

namespace holdfast::engines::redis {

namespace {

// What the scripts of one lock share. KEYS: hf:l:NAME, hf:t. A script calls open() first and close() last; in
// between it
// changes holders and queue through the functions here.
//
// The first write of every path that takes something is an INCR: a server that refuses writes for lack of memory
// refuses it before anything was changed. Paths that give something back begin with without_memory() and are not
// refused.
constexpr std::string_view library = R"lua(
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

-- draw() as the first write of a path that needs memory; the number is used by the next who wants one.
local spare
local function draw()
  local t = call('INCR', T)
  if t < 1e15 then t = us; call('SET', T, text(us)) end
  spare = text(t)
end
local function next_token()
  if not spare then draw() end
  local t = spare
  spare = nil
  return t
end

-- A server that has no memory left judges a script by its first write, and refuses no DEL.
local function without_memory() call('DEL', P .. 'x:') end

local function publish(owner, message)
  return call('PUBLISH', P .. 'c:' .. string.sub(owner, 1, 32), message)
end

-- The compact form becomes the full one: somebody else is interested. What is left of a lock of which a part was
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

-- Some of them: the rest is found by the next script, and the first waiter asks again at once as long as there is one.
local function expire()
  for _, owner in ipairs(call('ZRANGEBYSCORE', E, '-inf', text(now), 'LIMIT', 0, 128)) do drop(owner, 'expired') end
end

local function is_held(owner)
  local ends = call('ZSCORE', E, owner)
  return ends and tonumber(ends) > now
end

-- A client listens to its channel for as long as its process lives. The first who finds nobody listening writes down
-- when; whoever finds the same a grace later may bury it. A client that comes back removes the note (see the greeting).
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
        call('SET', P .. 'g:' .. client, text(now), 'PX', text(grace * 10))
      end
    end
  end
  return found[client]
end

local function bury()
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

-- Lets in from the head of the queue whoever fits. The message is the grant; where nobody hears it, nobody waits. One
-- that does not fit keeps all others waiting, so it is asked whether it is still there. `me` is whoever asks, and
-- has the
-- answer instead.
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

-- All keys of the lock end together, with the last one who has an interest in it.
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

// KEYS hf:l:NAME hf:t  ARGV owner ttl "GRACE SINCE HOST PID LABEL" "MODE WEIGHT CAPACITY ORDER PRIORITY WAIT REPLACES"
// Answers the token when granted now; {1, token, ms left} when granted before; {2, ms until recheck, server us, token}
// when waiting, where every grant that comes later has a higher token; 0 when busy.
constexpr std::string_view enter_fast = R"lua(
if redis.call('EXISTS', string.sub(KEYS[2], 1, -2) .. 'x:' .. ARGV[1]) == 1 then
  return redis.error_reply('HFOVER given up')
end
local token = redis.pcall('INCR', KEYS[2])
if type(token) == 'number' and token > 1e15 and string.byte(ARGV[4]) == 120 and redis.call('SET', KEYS[1],
    string.format('x%s %.0f %s %s', ARGV[1], token, ARGV[2], ARGV[3]), 'NX', 'PX', ARGV[2]) then
  return token
end
)lua";

constexpr std::string_view enter_slow = R"lua(
local me = ARGV[1]
local ask = {ttl = ARGV[2], rest = ARGV[3]}
local cap, order, priority, wait
ask.mode, ask.weight, cap, order, priority, wait, ask.replaces =
  string.match(ARGV[4], '^(%a) (%d+) (%d+) (%a) (%-?%d+) (%d) (%S+)$')
if ask.mode == 'X' then ask.mode = 'x' end
ask.weight = tonumber(ask.weight)
local v = call('GET', L)
local owner, granted, grace = string.match(v or '', '^x(%S+) (%d+) %d+ (%d+)')
if owner == me then return {1, granted, call('PTTL', L)} end
local fresh = type(token) == 'number'
if not fresh then
  -- No memory: whoever has a place or the lock may ask what became of it, nobody else.
  if call('HEXISTS', H, me) == 0 and call('HEXISTS', W, me) == 0 then return token end
  without_memory()
  token = tonumber(call('GET', T) or '0')
end
if owner and wait == '0' and ask.replaces == '-' and not is_gone(owner, tonumber(grace)) then return 0 end
if token < 1e15 then token = us; call('SET', T, text(us)) end
token = text(token)
if fresh then spare = token end
if not open(v) then return redis.error_reply('WRONGTYPE the key is not a lock of this layout') end
local known = call('HGET', H, me)
if known and not is_held(me) then
  -- Without a word: the message that it is lost would be taken for that of the grant that comes now.
  drop(me)
  known = nil
end
expire()
if known then
  serve(); close()
  return {1, string.match(known, '^%S+ %d+ (%d+)'), call('ZSCORE', E, me) - now}
end
if used == 0 and call('EXISTS', Q) == 0 then capacity = tonumber(cap) end
if capacity ~= tonumber(cap) then close(); return redis.error_reply('HFCAPACITY ' .. text(capacity)) end

local function may_enter()
  local freed = freed_by(ask)
  if not freed or used - freed + ask.weight > capacity then return false end
  if ask.replaces ~= '-' then return true end
  local head = call('ZRANGE', Q, 0, 0, 'WITHSCORES')
  if not head[1] then return true end
  local ahead = tonumber(head[2])
  if ahead < -1e100 then return false end
  return order == 'b' or -tonumber(priority) < ahead
end

local place = waiter(me)
if not freed_by(ask) then
  if place then unqueue(me, place) end
  serve(); close()
  return redis.error_reply('HFGONE not held any more')
end
if not place and may_enter() then
  local mine = next_token()
  admit(me, mine, ask)
  serve(); close()
  return {1, mine, tonumber(ask.ttl)}
end
bury()
serve(me)
known = call('HGET', H, me)
if not known and not place and may_enter() then
  admit(me, next_token(), ask)
  known = call('HGET', H, me)
end
if known then
  close()
  return {1, string.match(known, '^%S+ %d+ (%d+)'), call('ZSCORE', E, me) - now}
end
if wait == '0' then close(); return 0 end
if not place then
  local score = ask.replaces ~= '-' and '-1e200' or text(-tonumber(priority))
  place = {member = token .. me}
  call('ZADD', Q, score, place.member)
  call('HSET', W, me, table.concat({ask.mode, text(ask.weight), ask.ttl, priority, ask.replaces, place.member,
    ask.rest}, ' '))
end
close()
return {2, recheck(place.member), text(us), token}
)lua";

// KEYS hf:t hf:l:NAME...  ARGV ttl, then owner and "GRACE SINCE HOST PID LABEL" for each name.
// Answers the tokens, or nothing when one of them is taken.
constexpr std::string_view enter_all_text = R"lua(
for i = 2, #ARGV, 2 do
  if redis.call('EXISTS', string.sub(KEYS[1], 1, -2) .. 'x:' .. ARGV[i]) == 1 then
    return redis.error_reply('HFOVER given up')
  end
end
local tokens = {redis.call('INCR', KEYS[1])}
if tokens[1] < 1e15 then
  local c = redis.call('TIME')
  tokens[1] = c[1] * 1000000 + c[2]
  redis.call('SET', KEYS[1], string.format('%.0f', tokens[1]))
end
for i = 2, #KEYS do if redis.call('EXISTS', KEYS[i]) == 1 then return {} end end
for i = 2, #KEYS do
  if i > 2 then tokens[i - 1] = redis.call('INCR', KEYS[1]) end
  redis.call('SET', KEYS[i], string.format('x%s %.0f %s %s', ARGV[2 * i - 2], tokens[i - 1], ARGV[1], ARGV[2 * i - 1]),
    'PX', ARGV[1])
end
return tokens
)lua";

// KEYS hf:l:NAME hf:t  ARGV "xOWNER " (as the compact form begins) [, how long (ms) a late request of the owner is to
// be kept out]. Answers 1, or 0 when it was not held.
constexpr std::string_view release_fast = R"lua(
if (ARGV[2] or '') ~= '' then
  local mark = string.sub(KEYS[2], 1, -2) .. 'x:'
  redis.call('DEL', mark)  -- see without_memory()
  redis.call('SET', mark .. string.sub(ARGV[1], 2, -2), '', 'PX', ARGV[2])
end
local v = redis.call('GET', KEYS[1])
if not v then return 0 end
if string.sub(v, 1, #ARGV[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
if string.byte(v) == 120 then return 0 end
)lua";

constexpr std::string_view release_slow = R"lua(
without_memory()
if not open(call('GET', L)) then return redis.error_reply('WRONGTYPE the key is not a lock of this layout') end
expire()
local me = string.sub(ARGV[1], 2, -2)
local held = is_held(me)
drop(me)
serve(); close()
return held and 1 or 0
)lua";

// As release, of a place in the queue or of the grant that came meanwhile; the place alone with ARGV[3] = 1. An upgrade
// that arrived after all and is not wanted gives back what it had replaced.
constexpr std::string_view leave_slow = R"lua(
without_memory()
if not open(call('GET', L)) then return redis.error_reply('WRONGTYPE the key is not a lock of this layout') end
expire()
local me = string.sub(ARGV[1], 2, -2)
local place = waiter(me)
if place then
  unqueue(me, place)
elseif ARGV[3] ~= '1' then
  local before = call('HGET', H, '<' .. me)
  drop(me)
  if before then
    local owner, record = string.match(before, '^(%S+) (.*)$')
    local ttl = string.match(record, '^%S+ %d+ %d+ (%d+)')
    call('HSET', H, owner, record)
    call('ZADD', E, text(now + tonumber(ttl)), owner)
    used = used + weight_of(record)
  end
end
serve(); close()
return 1
)lua";

// KEYS hf:l:NAME hf:t  ARGV owner mode weight. Answers {token, ms left}, or 0 when it was not held.
constexpr std::string_view downgrade_text = R"lua(
without_memory()
if not open(call('GET', L)) then return redis.error_reply('WRONGTYPE the key is not a lock of this layout') end
expire()
local record = capacity and is_held(ARGV[1]) and call('HGET', H, ARGV[1])
if not record then close(); return 0 end
local mode, weight, token, rest = string.match(record, '^(%S+) (%d+) (%d+) (.*)$')
local left = call('ZSCORE', E, ARGV[1]) - now
if mode ~= ARGV[2] and tonumber(ARGV[3]) < tonumber(weight) then  -- a late copy must not let it grow again
  call('HSET', H, ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. token .. ' ' .. rest)
  call('HDEL', H, '<' .. ARGV[1])
  used = used + tonumber(ARGV[3]) - tonumber(weight)
  touched = true
end
serve(); close()
return {token, left}
)lua";

// KEYS hf:t hf:l:NAME...  ARGV owner and ttl for each. Answers a string of 1 (held for another ttl), 0 (gone) and ?
// (somebody has damaged it: not known). Whoever has it in the compact form costs two calls. Never brings back to life
// what has ended. Needs no memory: see without_memory().
constexpr std::string_view renew_text = R"lua(
local call = redis.call
local P = string.sub(KEYS[1], 1, -2)
local clock = call('TIME')
local us = clock[1] * 1000000 + clock[2]
local now = math.floor(us / 1000)
if tonumber(call('GET', KEYS[1]) or '0') < us then redis.pcall('SET', KEYS[1], string.format('%.0f', us)) end
local function renew_member(L, owner, ttl)
  local name = string.sub(L, #P + 3)
  local E = P .. 'e:' .. name
  local ends = call('ZSCORE', E, owner)
  if not ends or tonumber(ends) <= now or call('HEXISTS', P .. 'h:' .. name, owner) == 0 then return '0' end
  call('DEL', P .. 'x:')
  call('ZADD', E, string.format('%.0f', now + tonumber(ttl)), owner)
  if call('PTTL', L) < tonumber(ttl) then
    for _, kind in ipairs({'l:', 'h:', 'e:', 'q:', 'w:', 'o:'}) do call('PEXPIRE', P .. kind .. name, ttl) end
  end
  return '1'
end
local out, values, first = {}, {}, 2
for i = 2, #KEYS do
  if i - first >= #values then
    first = i
    values = call('MGET', unpack(KEYS, i, math.min(i + 499, #KEYS)))
  end
  local L, owner, ttl = KEYS[i], ARGV[2 * i - 3], ARGV[2 * i - 2]
  local v = values[i - first + 1]
  if not v then
    out[i - 1] = '0'
  elseif string.byte(v) == 109 then
    local known, verdict = pcall(renew_member, L, owner, ttl)
    out[i - 1] = known and verdict or '?'
  elseif string.sub(v, 2, #owner + 2) == owner .. ' ' then
    out[i - 1] = call('PEXPIRE', L, ttl) == 1 and '1' or '0'
  else
    out[i - 1] = '0'
  end
end
return table.concat(out)
)lua";

// KEYS hf:l:NAME hf:t  ARGV owner, how long (ms) a late request of it is to be kept out. Answers {1, token, ms left,
// mode, weight, ttl} when granted, {2, recheck, us, token} when waiting (as enter), 0 when nothing is known of it, and
// then nothing ever will be.
constexpr std::string_view settle_text = R"lua(
local function nothing()
  without_memory()
  call('SET', P .. 'x:' .. ARGV[1], '', 'PX', ARGV[2])
  return 0
end
local v = call('GET', L)
if not v then return nothing() end
local owner, token, ttl = string.match(v, '^x(%S+) (%d+) (%d+)')
if owner then
  if owner ~= ARGV[1] then return nothing() end
  return {1, token, call('PTTL', L), 'x', text(whole), ttl}
end
local place = waiter(ARGV[1])
if place then return {2, recheck(place.member), text(us), call('GET', T) or '0'} end
if not is_held(ARGV[1]) then return nothing() end
local mode, weight
mode, weight, token, ttl = string.match(call('HGET', H, ARGV[1]), '^(%S+) (%d+) (%d+) (%d+)')
return {1, token, call('ZSCORE', E, ARGV[1]) - now, mode, weight, ttl}
)lua";

// KEYS hf:l:NAME hf:t. Answers {value of hf:l, its ms left, server ms, {OWNER, record, ...}, {OWNER, end, ...},
// {queue}, {OWNER, record, ...}}
constexpr std::string_view inspect_text = R"lua(
local v = call('GET', L)
if not v then return {} end
if string.byte(v) == 120 then return {v, call('PTTL', L), text(now)} end
return {v, call('PTTL', L), text(now), call('HGETALL', H), call('ZRANGE', E, 0, -1, 'WITHSCORES'),
  call('ZRANGE', Q, 0, -1),
  call('HGETALL', W)}
)lua";

// KEYS hf:l:NAME hf:t. Answers how many holders lost it.
constexpr std::string_view revoke_text = R"lua(
without_memory()
if not open(call('GET', L)) then return redis.error_reply('WRONGTYPE the key is not a lock of this layout') end
if not capacity then return 0 end
expire()
local n = 0
for _, owner in ipairs(call('ZRANGE', E, 0, -1)) do
  drop(owner, 'revoked')
  n = n + 1
end
serve(); close()
return n
)lua";

// KEYS hf:n:NAME hf:t hf:p:NAME  ARGV op operand expected keep(ms, 0: as before). Answers {existed before or exists
// now,
// applied, value, version}. Values stay strings: Lua's numbers are too small for 64 bits.
constexpr std::string_view count_text = R"lua(
local call = redis.call
local K = KEYS[1]
local op, operand, expected, keep = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local old = call('HMGET', K, 'v', 'g', 'k')
local value, version = old[1], old[2]
if keep == 0 then keep = tonumber(old[3] or '0') end
local function changed()
  local P = string.sub(KEYS[2], 1, -2)
  local name = string.sub(K, #P + 3)
  local all = call('HGETALL', KEYS[3])
  local clock = call('TIME')
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) < now or call('PUBLISH', P .. 'c:' .. all[i], 'p ' .. name) == 0 then
      call('HDEL', KEYS[3], all[i])
    end
  end
end
local function write(new)
  local t = call('INCR', KEYS[2])
  if t < 1e15 then
    local clock = call('TIME')
    t = clock[1] * 1000000 + clock[2]
    call('SET', KEYS[2], string.format('%.0f', t))
  end
  version = string.format('%.0f', t)
  call('HSET', K, 'v', new, 'g', version, 'k', string.format('%.0f', keep))
  if keep > 0 then call('PEXPIRE', K, string.format('%.0f', keep)) end
  changed()
  return {1, 1, call('HGET', K, 'v'), version}
end
local function unchanged(applied)
  if not value then return {0, applied, '0', '0'} end
  return {1, applied, value, version}
end
if op == 'read' then return unchanged(1) end
if op == 'store' then return write(operand) end
if op == 'create' then
  if value then return unchanged(0) end
  return write(operand)
end
if not value then return unchanged(0) end
if op == 'compare_exchange' then
  if value ~= expected then return unchanged(0) end
  return write(operand)
end
if op == 'erase' then
  call('INCR', KEYS[2])
  call('DEL', K)
  changed()
  return {0, 1, '0', '0'}
end
local sum = redis.pcall('HINCRBY', K, 'v', operand)
local new
if type(sum) == 'table' then
  new = '9223372036854775807'
elseif sum < 0 then
  new = '0'
else
  new = call('HGET', K, 'v')
end
call('HSET', K, 'v', value)
if new == value then return unchanged(1) end
return write(new)
)lua";

// KEYS hf:l:NAME or hf:n:NAME, hf:t, hf:p:NAME (of a counter)  ARGV client. From now on, for 15 s, that client hears
// of every change.
// Answers {version, ms after which to look again}.
constexpr std::string_view observe_counter = R"lua(
if KEYS[3] then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', now + 15000))
  redis.call('PEXPIRE', KEYS[3], 15000)
  local left = redis.call('PTTL', KEYS[1])
  return {redis.call('HGET', KEYS[1], 'g') or '0', left > 0 and math.min(left + 1, 5000) or 5000}
end
)lua";

constexpr std::string_view observe_lock = R"lua(
draw()
if not open(call('GET', L)) then return redis.error_reply('WRONGTYPE the key is not a lock of this layout') end
expire()
bury()
capacity = capacity or whole
call('HSET', O, ARGV[1], text(now + patience))
serve(); close()
local first = call('ZRANGE', E, 0, 0, 'WITHSCORES')[2]
return {used == 0 and '0' or version, first and math.max(math.min(tonumber(first) - now + 1, 1000), 2) or 5000}
)lua";

std::string join(std::string_view a, std::string_view b = {}, std::string_view c = {}) {
  std::string out;
  out.reserve(a.size() + b.size() + c.size());
  out.append(a).append(b).append(c);
  return out;
}

}  // namespace

script make_script(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha1(), nullptr);
  script out{std::string{text}, {}};
  for (unsigned i = 0; i < length; ++i) {
    constexpr std::string_view digits = "0123456789abcdef";
    out.sha += digits[digest[i] >> 4U];
    out.sha += digits[digest[i] & 15U];
  }
  return out;
}

namespace scripts {

// Each is made once, when first used.
#define HOLDFAST_SCRIPT(name, ...)                                          \
  const script& name() {                                                    \
    static const script& the = *new script{make_script(join(__VA_ARGS__))}; \
    return the;                                                             \
  }
HOLDFAST_SCRIPT(enter, enter_fast, library, enter_slow)
HOLDFAST_SCRIPT(enter_all, enter_all_text)
HOLDFAST_SCRIPT(release, release_fast, library, release_slow)
HOLDFAST_SCRIPT(leave, release_fast, library, leave_slow)
HOLDFAST_SCRIPT(downgrade, library, downgrade_text)
HOLDFAST_SCRIPT(renew, renew_text)
HOLDFAST_SCRIPT(settle, library, settle_text)
HOLDFAST_SCRIPT(inspect, library, inspect_text)
HOLDFAST_SCRIPT(revoke, library, revoke_text)
HOLDFAST_SCRIPT(count, count_text)
HOLDFAST_SCRIPT(observe, observe_counter, library, observe_lock)
#undef HOLDFAST_SCRIPT

const std::string_view lift =
    "local c = redis.call('TIME') "
    "local us = c[1] * 1000000 + c[2] "
    "if tonumber(redis.call('GET', KEYS[1]) or '0') < us then "
    "local done = redis.pcall('SET', KEYS[1], string.format('%.0f', us)) "
    "if done.err then if string.find(done.err, 'OOM', 1, true) then redis.call('DEL', KEYS[1]) "
    "else return done end end end "
    "return redis.status_reply('OK')";

}  // namespace scripts

}  // namespace holdfast::engines::redis
