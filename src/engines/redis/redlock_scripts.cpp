#include "engines/redis/redlock_scripts.hpp"

namespace holdfast::engines::redis::redlock_scripts {

namespace {

// The counter of a name that no client has used for a while is forgotten. Then it begins with the clock, which is ahead
// of it: no lock is taken more than a million times a second.
constexpr std::string_view tokens = R"lua(
local function last_token() return tonumber(redis.pcall('GET', KEYS[2])) end
local function written(token) return string.format('%.0f', token) end
local function next_token()
  local last = last_token()
  if last then return written(last + 1) end
  local clock = redis.call('TIME')
  return written(clock[1] * 1000000 + clock[2])
end
)lua";

// Something else may have the name of the lock: it is not ours.
constexpr std::string_view owners = R"lua(
local function is_of(key, owner)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and string.sub(value, 1, #owner + 1) == owner .. '.' and value
end
)lua";

constexpr std::string_view vote_text = R"lua(
if redis.call('EXISTS', KEYS[3], KEYS[4]) > 0 then return redis.error_reply('HFOVER given up') end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local value = redis.pcall('GET', KEYS[1])
  return {0, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value or ''}
end
local token = next_token()
redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
return {1, token}
)lua";

constexpr std::string_view raise_text = R"lua(
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if (last_token() or 0) < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return 1
)lua";

// DEL first: a server without memory left refuses SET, but judges a script by its first write.
constexpr std::string_view marks = R"lua(
local function mark(key, ms)
  if tonumber(ms) == 0 then return end
  redis.call('DEL', key)
  redis.call('SET', key, '', 'PX', ms)
end
)lua";

constexpr std::string_view give_back_text = R"lua(
mark(KEYS[2], ARGV[2])
return redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
)lua";

// The message is only a hint, and a user may lack the right to publish.
constexpr std::string_view release_text = R"lua(
mark(KEYS[2], ARGV[2])
local was_there = is_of(KEYS[1], ARGV[1]) and redis.call('DEL', KEYS[1]) or 0
local waiting = redis.pcall('PUBLISH', ARGV[3], '')
redis.pcall('PUBLISH', ARGV[4], '')
return {was_there, type(waiting) == 'number' and waiting or 0}
)lua";

constexpr std::string_view settle_text = R"lua(
local value = is_of(KEYS[1], ARGV[1])
if not value then return {0} end
return {1, value, written(last_token() or 0), redis.call('PTTL', KEYS[1])}
)lua";

constexpr std::string_view renew_text = R"lua(
local verdicts = {}
for i = 1, #KEYS / 2 do
  local lock, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local value, ttl, kept, token = unpack(ARGV, 4 * i - 3, 4 * i)
  local held = redis.pcall('GET', lock) == value and redis.call('PEXPIRE', lock, ttl) == 1
  if held and redis.call('PEXPIRE', counter, kept) == 0 then redis.pcall('SET', counter, token, 'PX', kept) end
  if held and (tonumber(redis.pcall('GET', counter)) or 0) < tonumber(token) then
    redis.pcall('SET', counter, token, 'PX', kept)
  end
  verdicts[i] = held and '1' or '0'
end
return table.concat(verdicts)
)lua";

constexpr std::string_view inspect_text = R"lua(
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
return value and {value, redis.call('PTTL', KEYS[1]), written(last_token() or 0)} or {}
)lua";

constexpr std::string_view revoke_text = R"lua(
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
local was_there = redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], next_token(), 'PX', ARGV[1])
redis.pcall('PUBLISH', ARGV[2], '')
redis.pcall('PUBLISH', ARGV[3], '')
return was_there
)lua";

}  // namespace

HOLDFAST_SCRIPT(vote, tokens, vote_text)
HOLDFAST_SCRIPT(raise_token, tokens, raise_text)
HOLDFAST_SCRIPT(give_back, marks, give_back_text)
HOLDFAST_SCRIPT(release, marks, owners, release_text)
HOLDFAST_SCRIPT(settle, tokens, owners, settle_text)
HOLDFAST_SCRIPT(renew, renew_text)
HOLDFAST_SCRIPT(inspect, tokens, inspect_text)
HOLDFAST_SCRIPT(revoke, tokens, revoke_text)

}  // namespace holdfast::engines::redis::redlock_scripts
