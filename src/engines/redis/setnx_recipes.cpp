#include "engines/redis/setnx_recipes.hpp"

#include <array>
#include <initializer_list>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

// ---- what the recipes do differently
//
//   take(key, owner, ttl, token)     true when it has taken the lock
//   token_in(value, owner)           the token in the value of that owner's lock, as text; nil for another's
//   extend(key, value, owner, ttl)   of a lock that is the owner's; false when it is over all the same
//   left(key, value)                 ms until it ends; -1 when it has no end, -2 when it is over

constexpr std::string_view by_expiry = R"lua(
local function token_in(value, owner)
  if string.sub(value, 1, #owner) == owner then return string.match(value, '^:(%d+)$', #owner + 1) end
end
local function left(key) return redis.call('PTTL', key) end
local function extend(key, _, _, ttl) return redis.call('PEXPIRE', key, ttl) == 1 end
)lua";

constexpr std::string_view take_by_set = R"lua(
local function take(key, owner, ttl, token)
  return redis.call('SET', key, owner .. ':' .. token, 'NX', 'PX', ttl)
end
)lua";

constexpr std::string_view take_by_setnx = R"lua(
local function take(key, owner, ttl, token)
  if redis.call('SETNX', key, owner .. ':' .. token) == 0 then return false end
  redis.call('EXPIRE', key, string.format('%.0f', ttl / 1000))
  return true
end
)lua";

// The classic recipe, in the words of the manual of SETNX. That its steps are one script here spares our own clients
// the race in which a loser overwrites the winner's value; others run it as single commands and may still do so. A
// number below 1e11 is a time in seconds, as the recipe was first written. What is no number has no end: it waits.
// The expiry of the key is only a net, far behind the end in the value: a key that no client comes back to goes.
constexpr std::string_view by_value = R"lua(
local now = tonumber(ARGV[1])
local function token_in(value, owner)
  local digits = string.match(value, '^%d+%.(%d+)$')
  if digits and #digits > #owner and string.sub(digits, 1, #owner) == owner then
    return string.sub(digits, #owner + 1)
  end
end
local function ends(value)
  local n = tonumber(string.match(value, '^(%d+)$') or string.match(value, '^(%d+)%.%d+$'))
  if n and n < 1e11 then return (n + 1) * 1000 end
  return n
end
local function written(owner, ttl, token)
  return string.format('%.0f.%s%s', now + tonumber(ttl), owner, token)
end
local function net(key, ttl) redis.call('PEXPIRE', key, string.format('%.0f', 2 * ttl + 60000)) end
local function take(key, owner, ttl, token)
  if redis.call('SETNX', key, written(owner, ttl, token)) == 0 then
    local value = redis.pcall('GET', key)
    local passed = type(value) == 'string' and ends(value)
    if not passed or passed >= now then return false end
    redis.call('GETSET', key, written(owner, ttl, token))
  end
  net(key, ttl)
  return true
end
local function extend(key, value, owner, ttl)
  if ends(value) < now then return false end
  redis.call('SET', key, written(owner, ttl, token_in(value, owner)))
  net(key, ttl)
  return true
end
local function left(key, value)
  local at = ends(value)
  if not at then return redis.call('PTTL', key) end
  return at >= now and at - now or -2
end
)lua";

// ---- what they have in common

constexpr std::string_view asking = R"lua(
local key, owner, ttl = KEYS[1], ARGV[2], ARGV[3]
local given_up
)lua";

// KEYS the lock, the last token, the mark
constexpr std::string_view try_it = R"lua(
local clock = redis.call('TIME')  -- before anything is taken: it may be refused
-- The clock may stand still for some microseconds, and two grants must not have one token. Without memory for the last
-- one the clock alone has to do.
local function next_token()
  local token = clock[1] * 1000000 + clock[2]
  local last = redis.pcall('GET', KEYS[2])
  last = type(last) == 'string' and tonumber(last) or 0
  return string.format('%.0f', math.max(token, last + 1))
end
given_up = redis.call('GET', KEYS[3])
local token = next_token()
if not given_up and take(key, owner, ttl, token) then
  redis.pcall('SET', KEYS[2], token, 'PX', 60000)
  return {1, token, tonumber(ttl)}
end
)lua";

constexpr std::string_view look_at_it = R"lua(
local value = redis.pcall('GET', key)
if type(value) == 'table' then return value end
local mine = value and token_in(value, owner)
if mine then return {1, mine, left(key, value)} end
if given_up then return redis.error_reply('HFOVER given up') end
return {0, value and left(key, value) or 0}
)lua";

constexpr std::string_view release_text = R"lua(
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'string' and token_in(value, ARGV[2]) then return redis.call('DEL', KEYS[1]) end
return 0
)lua";

constexpr std::string_view renew_text = R"lua(
local verdicts = {}
for i, key in ipairs(KEYS) do
  local owner, ttl = ARGV[2 * i], ARGV[2 * i + 1]
  local value = redis.pcall('GET', key)
  local held = type(value) == 'string' and token_in(value, owner) and extend(key, value, owner, ttl)
  verdicts[i] = held and '1' or '0'
end
return table.concat(verdicts)
)lua";

constexpr std::string_view inspect_text = R"lua(
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
return value and {value, left(KEYS[1], value)} or {}
)lua";

// What is no string was made by no recipe of these.
constexpr std::string_view revoke_text = R"lua(
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
return redis.call('DEL', KEYS[1])
)lua";

script joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const auto part : parts) text += part;
  return make_script(text);
}

recipe make_recipe(std::string_view layout, std::initializer_list<std::string_view> own,
                   nanoseconds grain, bool is_decimal_owner, void (*describe)(capabilities&)) {
  std::string head;
  for (const auto part : own) head += part;
  return {layout,
          joined({head, asking, try_it, look_at_it}),
          joined({head, asking, look_at_it}),
          joined({head, release_text}),
          joined({head, renew_text}),
          joined({head, inspect_text}),
          joined({revoke_text}),
          grain,
          is_decimal_owner,
          describe};
}

// ---- what they are worth

constexpr std::string_view usual_exclusion =
    "While the server keeps its data, its clock neither jumps nor runs more than 1 % apart from "
    "ours, and every program that uses the key keeps to the recipe. A server that loses data "
    "(restart without persistence, eviction, fail-over to a replica that lagged) may grant a lock "
    "twice; the tokens tell the two apart.";

constexpr std::string_view polling =
    "Waiters are not told of a release: they ask every 5 to 50 ms, in no order, and leave nothing "
    "in the store. Dead holders are noticed after their ttl. A request that was given up and is "
    "delivered within ten minutes has no effect; one that a proxy delivers still later may take "
    "the lock for the length of its ttl.";

void describe_setnx(capabilities& caps) {
  caps.exclusion = usual_exclusion;
  caps.limits = polling;
}

void describe_expire_lua(capabilities& caps) {
  caps.min_ttl = 1s;
  caps.expiry_slack = 1100ms;
  caps.exclusion = usual_exclusion;
  caps.limits =
      "The store counts whole seconds: a ttl is rounded up, so a dead holder may keep its lock for "
      "up to a second longer than asked. A client that runs SETNX and EXPIRE as two commands and "
      "dies between them leaves a lock that never ends; Holdfast does not, but waits behind it. ";
  caps.limits += polling;
}

void describe_getset(capabilities& caps) {
  caps.min_ttl = 1s;
  caps.margin = 200ms;
  caps.exclusion =
      "Only while the wall clocks of all clients agree within 200 ms: the lock's end is a time "
      "that "
      "its holder has written, and others compare with their own clock. A client whose clock is "
      "ahead takes locks that are still held; the tokens, which are the server's, tell the two "
      "apart. For the rest as long as the server keeps its data and every program keeps to the "
      "recipe.";
  caps.limits =
      "Kept for old deployments; setnx is better in every way. A client of another make that loses "
      "the race for an ended lock may overwrite the winner's value with its own: the winner, if it "
      "is ours, then loses the lease at its next renewal and its release says not_held, and the "
      "lock stays until the overwritten end. Such clients leave keys without an expiry; ours has "
      "one of twice the ttl and a minute, as a net. Ends are written in ms, and read in ms or "
      "seconds. ";
  caps.limits += polling;
}

}  // namespace

const recipe* recipe_of(std::string_view layout) {
  static const auto& all = *new std::array<recipe, 3>{
      make_recipe("setnx", {by_expiry, take_by_set}, 1ms, false, describe_setnx),
      make_recipe("setnx-expire-lua", {by_expiry, take_by_setnx}, 1s, false, describe_expire_lua),
      make_recipe("getset", {by_value}, 1ms, true, describe_getset),
  };
  for (const auto& known : all)
    if (known.layout == layout) return &known;
  return nullptr;
}

}  // namespace holdfast::engines::redis
