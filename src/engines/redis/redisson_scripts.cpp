#include "engines/redis/redisson_scripts.hpp"

#include <string_view>

namespace holdfast::engines::redis::redisson_scripts {

namespace {

// KEYS NAME token mark  ARGV owner ttl. As RFencedLock, except that an owner that asks again does not enter twice: it
// is asking what became of its request. Answers {1, token, ms left} or {0, ms left of the holder}. Here and below the
// token comes first: if it cannot be had, nothing is taken.
constexpr std::string_view lock_take = R"lua(
local call = redis.call
if call('GET', KEYS[3]) and redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
  return redis.error_reply('HFOVER given up')
end
if call('EXISTS', KEYS[1]) == 0 then
  local token = call('INCR', KEYS[2])
  call('HINCRBY', KEYS[1], ARGV[1], 1)
  call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, token, tonumber(ARGV[2])}
end
)lua";

// KEYS NAME token  ARGV owner. While it is held no other owner is given a token, so the last one is the owner's.
constexpr std::string_view lock_look = R"lua(
local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(mine) == 'table' then return mine end
local left = redis.call('PTTL', KEYS[1])
if mine == 0 then return {0, left} end
return {1, redis.call('GET', KEYS[2]) or redis.call('INCR', KEYS[2]), left}
)lua";

// KEYS NAME  ARGV owner channel. Answers 1, or 0 when it was not the owner's.
constexpr std::string_view lock_release_text = R"lua(
if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], '0')
return 1
)lua";

// The ids of the permits of one owner are its 14 bytes and the number of the permit.
constexpr std::string_view permit_library = R"lua(
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local text = function(n) return string.format('%.0f', n) end
local function id(owner, i) return owner .. string.char(math.floor(i / 256), i % 256) end
)lua";

// KEYS NAME timeout token made mark  ARGV owner ttl channel n k. Answers {1, token, ms left, k} or {0, ms until a
// permit ends}. Times are the server's: what Redisson's clients write as theirs.
constexpr std::string_view permits_enter_text = R"lua(
local K, Z = KEYS[1], KEYS[2]
local owner, ttl, channel = ARGV[1], ARGV[2], ARGV[3]
local n, k = tonumber(ARGV[4]), tonumber(ARGV[5])
local free = redis.pcall('GET', K)
if type(free) == 'table' then return free end
local mine = call('ZSCORE', Z, id(owner, 0))
if mine and tonumber(mine) > now then
  return {1, call('GET', KEYS[3]) or call('INCR', KEYS[3]), tonumber(mine) - now, k}
end
if call('GET', KEYS[5]) then return redis.error_reply('HFOVER given up') end
local ended = call('ZRANGEBYSCORE', Z, '-inf', text(now), 'LIMIT', 0, 1000)
for _, one in ipairs(ended) do call('ZREM', Z, one) end
if free and #ended > 0 then
  free = call('INCRBY', K, #ended)
  call('PUBLISH', channel, text(free))
end
local taken = call('ZCARD', Z)
if not free then
  free = n - taken
  call('SET', K, text(free))
  call('SET', KEYS[4], text(n))
  call('PUBLISH', channel, text(free))
end
free = tonumber(free)
if free + taken ~= n then
  -- No permit is taken, and the number is our own: then it may be another number from now on.
  if taken > 0 or call('GET', KEYS[4]) ~= text(free) then
    return redis.error_reply('HFCAPACITY ' .. text(free + taken))
  end
  free = n
  call('SET', K, text(n))
  call('SET', KEYS[4], text(n))
end
if free < k then
  local first = call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(first) >= 922337203685477 then return {0, -1} end
  return {0, tonumber(first) - now}
end
local token = call('INCR', KEYS[3])
call('DECRBY', K, k)
for i = 0, k - 1 do call('ZADD', Z, text(now + ttl), id(owner, i)) end
local life = call('PTTL', K)
if life > 0 then call('PEXPIRE', Z, life) end
return {1, token, tonumber(ttl), k}
)lua";

// In whatever mode it has it. KEYS NAME timeout token  ARGV owner of a lock, of permits.
// Answers {1, token, ms left} of a lock, {1, token, ms left, how many} of permits, or {0, 0}.
constexpr std::string_view settle_text = R"lua(
if call('TYPE', KEYS[1]).ok == 'hash' then
  if call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {0, 0} end
  return {1, call('GET', KEYS[3]) or call('INCR', KEYS[3]), call('PTTL', KEYS[1])}
end
local k, first = 0, nil
while k < 65536 do
  local ends = call('ZSCORE', KEYS[2], id(ARGV[2], k))
  if not ends then break end
  first = math.min(first or tonumber(ends), tonumber(ends))
  k = k + 1
end
if k == 0 then return {0, 0} end
return {1, call('GET', KEYS[3]) or call('INCR', KEYS[3]), first - now, k}
)lua";

// KEYS NAME timeout  ARGV owner channel k. Answers 1, or 0 when one of them was gone or over.
constexpr std::string_view permits_release_text = R"lua(
local back, whole = 0, 1
for i = 0, tonumber(ARGV[3]) - 1 do
  local ends = call('ZSCORE', KEYS[2], id(ARGV[1], i))
  if ends then
    call('ZREM', KEYS[2], id(ARGV[1], i))
    back = back + 1
  end
  if not ends or tonumber(ends) <= now then whole = 0 end
end
if back > 0 then call('PUBLISH', ARGV[2], text(call('INCRBY', KEYS[1], back))) end
return whole
)lua";

// Of an RSemaphore. KEYS[1] is its free permits, `made_key` has the number that a client of ours has made. The holders
// are not known, and not the number if Java has made it, or has added to ours.
constexpr std::string_view plain_library = R"lua(
local function number_made(made_key, free)
  local made = tonumber(redis.call('GET', made_key))
  return made and free <= made and made or nil
end
)lua";

// KEYS NAME token made  ARGV ttl channel n k
constexpr std::string_view plain_enter_text = R"lua(
local call = redis.call
local K, n, k = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local found = redis.pcall('GET', K)
if type(found) == 'table' then return found end
local free = found and tonumber(found)
if found and not free then return redis.error_reply('WRONGTYPE it is text, and no number of permits') end
local made = free and number_made(KEYS[3], free)
if not free then
  call('SET', K, ARGV[3])
  call('SET', KEYS[3], ARGV[3])
  call('PUBLISH', ARGV[2], ARGV[3])
  free, made = n, n
end
if made and made ~= n then return redis.error_reply('HFCAPACITY ' .. made) end
if free > n then return redis.error_reply('HFCAPACITY ' .. free) end
if free < k then return {0, -1} end
local token = call('INCR', KEYS[2])
call('DECRBY', K, k)
return {1, token, tonumber(ARGV[1]), k}
)lua";

// KEYS NAME  ARGV channel k
constexpr std::string_view plain_release_text = R"lua(
redis.call('PUBLISH', ARGV[1], redis.call('INCRBY', KEYS[1], ARGV[2]))
return 1
)lua";

// KEYS NAME of a lock or an RSemaphore, or timeout of an RPermitExpirableSemaphore  ARGV for each: owner, ttl, and 0
// for a lock, the number of permits, or -1 for an RSemaphore. Answers a digit for each: 1 when it is held.
constexpr std::string_view renew_text = R"lua(
local function extend(key, owner, ttl, k)
  if k == 0 then
    return redis.pcall('HEXISTS', key, owner) == 1 and call('PEXPIRE', key, ttl) == 1
  end
  if k < 0 then return call('EXISTS', key) == 1 end
  for i = 0, k - 1 do
    local ends = redis.pcall('ZSCORE', key, id(owner, i))
    if type(ends) ~= 'string' or tonumber(ends) <= now then return false end
  end
  for i = 0, k - 1 do call('ZADD', key, text(now + ttl), id(owner, i)) end
  return true
end
local verdicts = {}
for i, key in ipairs(KEYS) do
  verdicts[i] = extend(key, ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i])) and '1' or '0'
end
return table.concat(verdicts)
)lua";

// KEYS NAME timeout token made count  ARGV plain (1 or 0). Answers {"lock", {owner, count ...}, ms left, token},
// {"permits", {id, ms left (-1: for ever) ...}, free, token}, {"plain", {}, free, token, number or -1} or {}.
constexpr std::string_view inspect_text = R"lua(
local kind = call('TYPE', KEYS[1]).ok
local token = call('GET', KEYS[3]) or '0'
if kind == 'hash' then return {'lock', call('HGETALL', KEYS[1]), call('PTTL', KEYS[1]), token} end
if kind ~= 'string' then return {} end
local taken = call('ZRANGEBYSCORE', KEYS[2], '(' .. text(now), '+inf', 'WITHSCORES')
local never = 922337203685477
for i = 2, #taken, 2 do
  local ends = tonumber(taken[i])
  taken[i] = ends < never and ends - now or -1
end
local free = tonumber(call('GET', KEYS[1]))
if not free then return {} end
if ARGV[1] == '0' or #taken > 0 then return {'permits', taken, text(free), token} end
if call('EXISTS', KEYS[5]) == 1 then return {} end  -- a latch
return {'plain', {}, text(free), token, number_made(KEYS[4], free) or -1}
)lua";

// KEYS NAME timeout token made count  ARGV channel of the lock, channel of the semaphore, plain (1 or 0). Answers how
// many holders lost it.
constexpr std::string_view revoke_text = R"lua(
local kind = call('TYPE', KEYS[1]).ok
if kind == 'hash' then
  -- Any hash of the server has a name here: only what Java or we wrote is a lock.
  for _, field in ipairs(call('HKEYS', KEYS[1])) do
    if field ~= 'mode' and not string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+') then
      return redis.error_reply('WRONGTYPE it is a hash, and no lock')
    end
  end
  call('DEL', KEYS[1])
  call('INCR', KEYS[3])
  call('PUBLISH', ARGV[1], '0')
  return 1
end
if kind ~= 'string' then return 0 end
local taken = call('ZRANGE', KEYS[2], 0, -1)
if #taken == 0 then
  local free = tonumber(call('GET', KEYS[1]))
  if ARGV[3] == '0' or not free or call('EXISTS', KEYS[5]) == 1 then return 0 end
  return free == number_made(KEYS[4], free) and 0 or redis.error_reply('HFNOOWNER ' .. text(free))
end
local holders, seen = 0, {}
for _, one in ipairs(taken) do
  local owner = string.sub(one, 1, 14)
  if not seen[owner] then holders = holders + 1 end
  seen[owner] = true
end
call('DEL', KEYS[2])
call('INCR', KEYS[3])
call('PUBLISH', ARGV[2], text(call('INCRBY', KEYS[1], #taken)))
return holders
)lua";

// KEYS NAME made  ARGV op operand expected keep(ms, 0: as before) channel. Answers {exists, applied, value}. Values
// stay strings: Lua's numbers are too small for 64 bits.
//
// "made" ends before the count does (counted from a clock that was read earlier), so a count that was forgotten does
// not look like one that has reached zero.
constexpr std::string_view count_text = R"lua(
local call = redis.call
local K, M = KEYS[1], KEYS[2]
local op, operand, expected, keep, channel = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local stored = redis.pcall('GET', K)
if type(stored) == 'table' then return stored end
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local made = call('EXISTS', M) == 1
local value = stored or made and '0'
local function mark(ms)
  call('SET', M, '1')
  call('PEXPIREAT', M, string.format('%.0f', now + ms - 2))
end
if stored and not made then
  local left = call('PTTL', K)
  mark(left == -1 and 86400000 or left)
end
local function write(new, message)
  if string.sub(new, 1, 1) == '-' then new = '0' end
  if new == '0' then
    call('DEL', K)
    if keep > 0 or not value then mark(keep > 0 and keep or 86400000) end
    call('PUBLISH', channel, '0')
  elseif keep > 0 then
    call('SET', K, new, 'PX', string.format('%.0f', keep))
    mark(keep)
  else
    call('SET', K, new, 'KEEPTTL')
  end
  if new ~= '0' and message then call('PUBLISH', channel, message) end
  return {1, 1, new}
end
if op == 'read' then return {value and 1 or 0, 1, value or '0'} end
if op == 'store' then return write(operand, '1') end
if op == 'create' then
  if value then return {1, 0, value} end
  return write(operand, '1')
end
if not value then return {0, 0, '0'} end
if op == 'compare_exchange' then
  if value ~= expected then return {1, 0, value} end
  return write(operand, '2')
end
if op == 'erase' then
  call('DEL', K, M)
  call('PUBLISH', channel, '0')
  return {0, 1, '0'}
end
local down = string.sub(operand, 1, 1) == '-'
if operand == '0' or (value == '0' and down) then return {1, 1, value} end
if not stored then return write(operand, '1') end
local sum = redis.pcall('INCRBY', K, operand)
if type(sum) == 'table' then
  if not string.find(sum.err, 'overflow') then return sum end
  return write('9223372036854775807')
end
if sum <= 0 then return write('0') end
return write(call('GET', K))
)lua";

}  // namespace

HOLDFAST_SCRIPT(lock_enter, lock_take, lock_look)
HOLDFAST_SCRIPT(lock_release, lock_release_text)
HOLDFAST_SCRIPT(permits_enter, permit_library, permits_enter_text)
HOLDFAST_SCRIPT(settle, permit_library, settle_text)
HOLDFAST_SCRIPT(permits_release, permit_library, permits_release_text)
HOLDFAST_SCRIPT(plain_enter, plain_library, plain_enter_text)
HOLDFAST_SCRIPT(plain_release, plain_release_text)
HOLDFAST_SCRIPT(renew, permit_library, renew_text)
HOLDFAST_SCRIPT(inspect, permit_library, plain_library, inspect_text)
HOLDFAST_SCRIPT(revoke, permit_library, plain_library, revoke_text)
HOLDFAST_SCRIPT(count, count_text)

}  // namespace holdfast::engines::redis::redisson_scripts
