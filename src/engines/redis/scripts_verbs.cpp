// The scripts that take, keep and give back a lock.
#include "engines/redis/scripts.hpp"

namespace holdfast::engines::redis::scripts {

namespace {

// KEYS hf:l:NAME hf:t  ARGV owner ttl "GRACE SINCE HOST PID LABEL" "MODE WEIGHT CAPACITY ORDER PRIORITY WAIT REPLACES"
// Answers the token when granted now; {1, token, ms left} when granted before; {2, ms until recheck, server us, token}
// when waiting, where every grant that comes later has a higher token; 0 when busy.
constexpr std::string_view enter_fast = R"lua(
if redis.call('EXISTS', string.sub(KEYS[2], 1, -2) .. 'x:' .. ARGV[1]) == 1 then
  return redis.error_reply('HFOVER given up')
end
local token = redis.pcall('INCR', KEYS[2])
if string.sub(KEYS[2], -2) == '}t' and type(token) == 'number' then  -- as in the library: of a cluster
  local c = redis.call('TIME')
  local us = c[1] * 1000000 + c[2]
  if token < us then
    token = us
    redis.call('SET', KEYS[2], string.format('%.0f', us))
  end
end
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
  -- No memory: only an owner that has a place or the lock may ask what became of it.
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
drop_absent()
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
if tokens[1] < 1e15 or string.sub(KEYS[1], -2) == '}t' then
  local c = redis.call('TIME')
  tokens[1] = math.max(tokens[1], c[1] * 1000000 + c[2])
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
// (another program has damaged it: not known). A grant in the compact form costs two calls. Never brings back to life
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
  redis.pcall('DEL', P .. 'x:')
  call('ZADD', E, string.format('%.0f', now + tonumber(ttl)), owner)
  if call('PTTL', L) < tonumber(ttl) then
    for _, kind in ipairs({'l:', 'h:', 'e:', 'q:', 'w:', 'o:'}) do redis.pcall('PEXPIRE', P .. kind .. name, ttl) end
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

}  // namespace

HOLDFAST_SCRIPT(enter, enter_fast, library, enter_slow)
HOLDFAST_SCRIPT(enter_all, enter_all_text)
HOLDFAST_SCRIPT(release, release_fast, library, release_slow)
HOLDFAST_SCRIPT(leave, release_fast, library, leave_slow)
HOLDFAST_SCRIPT(downgrade, library, downgrade_text)
HOLDFAST_SCRIPT(renew, renew_text)
HOLDFAST_SCRIPT(settle, library, settle_text)

}  // namespace holdfast::engines::redis::scripts
