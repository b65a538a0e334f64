// The scripts for operators, for counters and for clients that watch for a change.
#include "engines/redis/scripts.hpp"

namespace holdfast::engines::redis::scripts {

namespace {

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
// now, applied, value, version}. Values stay strings: Lua's numbers are too small for 64 bits.
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
  if t < 1e15 or string.sub(KEYS[2], -2) == '}t' then  -- of a cluster: as in the library
    local clock = call('TIME')
    t = math.max(t, clock[1] * 1000000 + clock[2])
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
// of every change. Answers {version, ms after which to look again}.
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
drop_absent()
capacity = capacity or whole
call('HSET', O, ARGV[1], text(now + patience))
serve(); close()
local first = call('ZRANGE', E, 0, 0, 'WITHSCORES')[2]
return {used == 0 and '0' or version, first and math.max(math.min(tonumber(first) - now + 1, 1000), 2) or 5000}
)lua";

}  // namespace

HOLDFAST_SCRIPT(inspect, library, inspect_text)
HOLDFAST_SCRIPT(revoke, library, revoke_text)
HOLDFAST_SCRIPT(count, count_text)
HOLDFAST_SCRIPT(observe, observe_counter, library, observe_lock)

}  // namespace holdfast::engines::redis::scripts
