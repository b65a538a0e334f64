#include "engines/redis/server_info.hpp"

#include "engines/redis/slots.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

namespace holdfast::engines::redis {

namespace {

using resp::value;
using words = std::vector<std::string>;

constexpr std::array<std::string_view, 11> parameters{"maxmemory-policy",
                                                      "maxmemory",
                                                      "appendonly",
                                                      "appendfsync",
                                                      "save",
                                                      "timeout",
                                                      "min-replicas-to-write",
                                                      "min-replicas-max-lag",
                                                      "tcp-keepalive",
                                                      "lua-time-limit",
                                                      "client-output-buffer-limit"};

// ---- what the layouts need
//
// One command a line, with a key or channel in the place where it has one; @ stands for the prefix.

constexpr std::array<std::string_view, 31> native_needs{"GET @l:x",
                                                        "SET @l:x v",
                                                        "DEL @l:x",
                                                        "EXISTS @q:x",
                                                        "PTTL @l:x",
                                                        "PEXPIRE @l:x 1",
                                                        "PEXPIREAT @h:x 1",
                                                        "INCR @t",
                                                        "HSET @h:x f v",
                                                        "HGET @h:x f",
                                                        "HDEL @h:x f",
                                                        "HGETALL @h:x",
                                                        "HMGET @n:x f",
                                                        "HINCRBY @h:x f 1",
                                                        "ZADD @e:x 1 m",
                                                        "ZREM @e:x m",
                                                        "ZRANGE @q:x 0 0",
                                                        "ZREVRANGE @e:x 0 0",
                                                        "ZRANGEBYSCORE @e:x 0 1",
                                                        "ZSCORE @e:x m",
                                                        "ZRANK @q:x m",
                                                        "PUBLISH @c:x m",
                                                        "SUBSCRIBE @c:x",
                                                        "PUBSUB NUMSUB @c:x",
                                                        "MGET @t @l:x",
                                                        "HEXISTS @h:x f",
                                                        "SCRIPT LOAD x",
                                                        "EVALSHA x 0",
                                                        "TIME",
                                                        "PING",
                                                        "SCAN 0"};

// The layouts that others have defined keep a lock at its plain name, so without a prefix there is no key to ask about.
constexpr std::array<std::string_view, 11> setnx_needs{
    "GET @x",     "SET @x v",    "DEL @x",      "PTTL @x", "PEXPIRE @x 1", "EXPIRE @x 1",
    "SETNX @x v", "GETSET @x v", "EVALSHA x 0", "TIME",    "PING"};

constexpr std::array<std::string_view, 3> any_needs{"EVALSHA x 0", "TIME", "PING"};

// As the keys begin.
std::string prefix_of(const settings& how) {
  const bool is_tagged = how.is_cluster() && how.layout == "native";
  return is_tagged ? how.prefix + std::string{tag_text(0)} : how.prefix;
}

words needs_of(const settings& how) {
  words out;
  if (how.layout == "native") {
    out.assign(native_needs.begin(), native_needs.end());
  } else if (how.layout != "redisson" && how.layout != "redlock" && !how.prefix.empty()) {
    out.assign(setnx_needs.begin(), setnx_needs.end());
  } else {
    out.assign(any_needs.begin(), any_needs.end());
  }
  if (how.wait_replicas > 0) out.emplace_back("WAIT 1 1");
  if (how.has_sentinels() || how.is_cluster()) out.emplace_back("ROLE");
  if (how.is_cluster()) out.emplace_back("CLUSTER NODES");
  if (how.db != 0) out.emplace_back("SELECT 1");
  return out;
}

// ARGV the prefix, then such lines. Answers a digit for each: 1 for allowed. Asks the server whether, and runs nothing.
constexpr std::string_view rights_script = R"lua(
if not redis.acl_check_cmd then return '' end
local out = {}
for i = 2, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[i], '%S+') do
    words[#words + 1] = string.sub(word, 1, 1) == '@' and ARGV[1] .. string.sub(word, 2) or word
  end
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  out[i - 1] = known and may and '1' or '0'
end
return table.concat(out)
)lua";

constexpr std::string_view far_too_much = "FLUSHALL";

// ---- asking

struct question {
  std::string bytes;
  unsigned count = 0;
  void add(const words& command) {
    resp::append_head(bytes, command.size());
    for (const auto& word : command) resp::append_word(bytes, word);
    ++count;
  }
};

// All at once, and every answer for itself: a refusal is an answer, too. The values point into `frames`.
result<std::vector<value>> ask_all(connections& server, const question& what, const call& limits,
                                   std::string& frames) {
  auto sent = server.of({}).exchange(what.bytes, what.count, to_net(limits), frames);
  if (!sent) return std::move(sent).error();
  std::vector<value> out;
  std::string_view rest = frames;
  for (unsigned i = 0; i < what.count; ++i) {
    auto reply = resp::take(rest);
    if (!reply) return std::move(reply).error();
    out.push_back(std::move(*reply));
  }
  return out;
}

std::optional<std::int64_t> to_number(std::optional<std::string_view> text) {
  std::int64_t out = 0;
  if (!text) return std::nullopt;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), out);
  if (code != std::errc{}) return std::nullopt;
  return out;
}

// "# Server\r\nredis_version:7.0.15\r\n..."
void read_info(std::string_view text, server_info& into) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto colon = line.find(':'); colon != std::string_view::npos)
      into.info.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
}

// A map in RESP3, and so pairs here.
const value* find(const value& map, std::string_view key) {
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
    if (map.items[i].text == key) return &map.items[i + 1];
  return nullptr;
}

bool is_open(const value& user) {
  const auto* flags = find(user, "flags");
  const auto has = [flags](std::string_view flag) {
    return flags != nullptr &&
           std::ranges::any_of(flags->items, [flag](const value& set) { return set.text == flag; });
  };
  return has("on") && has("nopass");
}

// "HGET @h:x f" as "HGET hf:h:*"
std::string shown(std::string_view line, const std::string& prefix) {
  const auto at = line.find('@');
  if (at == std::string_view::npos) return std::string{line.substr(0, line.find(' '))};
  const auto end = std::min(line.find(' ', at), line.size());
  auto out =
      std::string{line.substr(0, at)} + prefix + std::string{line.substr(at + 1, end - at - 1)};
  if (out.ends_with('x')) out.back() = '*';
  return out;
}

void read_rights(std::string_view digits, const words& needs, const std::string& prefix,
                 server_info& into) {
  if (digits.size() != needs.size() + 1) return;
  into.missing_rights.emplace();
  for (std::size_t i = 0; i < needs.size(); ++i)
    if (digits[i] == '0') into.missing_rights->push_back(shown(needs[i], prefix));
  into.may_flush = digits.back() == '1';
}

result<void> ask_for_settings(connections& server, const settings& how, const call& limits,
                              server_info& into) {
  const auto needs = needs_of(how);
  words rights{"EVAL", std::string{rights_script}, "0", prefix_of(how)};
  rights.insert(rights.end(), needs.begin(), needs.end());
  rights.emplace_back(far_too_much);

  question what;
  what.add({"INFO"});
  what.add({"ACL", "WHOAMI"});
  what.add({"ACL", "GETUSER", "default"});
  what.add(rights);
  for (const auto parameter : parameters) what.add({"CONFIG", "GET", std::string{parameter}});

  std::string frames;
  const auto got = ask_all(server, what, limits, frames);
  if (!got) return got.error();
  const auto& all = *got;
  if (!all[0].is_error()) read_info(all[0].text, into);
  into.user = how.user.empty() ? "default" : how.user;
  if (!all[1].is_error()) into.user = all[1].text;
  if (!all[2].is_error()) into.is_default_open = is_open(all[2]);
  if (!all[3].is_error()) read_rights(all[3].text, needs, prefix_of(how), into);
  for (std::size_t i = 4; i < all.size(); ++i)
    if (all[i].items.size() == 2) into.config.emplace(all[i].items[0].text, all[i].items[1].text);
  return {};
}

// ---- measuring

result<void> compare_clocks(connections& server, const call& limits, server_info& into) {
  using std::chrono::microseconds;
  using std::chrono::seconds;
  const auto steady = std::chrono::steady_clock::now();
  const auto ours = std::chrono::system_clock::now().time_since_epoch();
  const auto got = server.run(server.of({}), {"TIME"}, limits);
  const auto took = std::chrono::steady_clock::now() - steady;
  if (!got && got.error().code() == errc::denied) return {};
  if (!got) return got.error();
  const auto& time = got->values.front().items;
  if (time.size() != 2) return unexpected_reply({}, server.url());
  const auto theirs = seconds{to_number(time[0].text).value_or(0)} +
                      microseconds{to_number(time[1].text).value_or(0)};
  into.clock_unsure = took / 2;
  into.clock_ahead = theirs - (ours + took / 2);
  return {};
}

result<void> measure_round_trips(connections& server, const call& limits, server_info& into) {
  constexpr int rounds = 9;
  for (int i = 0; i < rounds; ++i) {
    const auto sent = std::chrono::steady_clock::now();
    const auto got = server.run(server.of({}), {"PING"}, limits);
    if (!got && got.error().code() == errc::denied) break;
    if (!got) return got.error();
    into.round_trips.push_back(std::chrono::steady_clock::now() - sent);
  }
  std::ranges::sort(into.round_trips);
  return {};
}

}  // namespace

result<server_info> server_info::ask(connections& server, const settings& how, const call& limits) {
  server_info out;
  if (auto ok = ask_for_settings(server, how, limits, out); !ok) return std::move(ok).error();
  if (auto ok = compare_clocks(server, limits, out); !ok) return std::move(ok).error();
  if (auto ok = measure_round_trips(server, limits, out); !ok) return std::move(ok).error();
  return out;
}

std::optional<std::string_view> server_info::said(std::string_view field) const {
  const auto it = info.find(field);
  if (it == info.end()) return std::nullopt;
  return it->second;
}

std::optional<std::string_view> server_info::set_to(std::string_view parameter) const {
  const auto it = config.find(parameter);
  if (it == config.end()) return std::nullopt;
  return it->second;
}

std::optional<std::int64_t> server_info::number(std::string_view field) const {
  return to_number(said(field));
}

std::optional<std::int64_t> server_info::number_set_to(std::string_view parameter) const {
  return to_number(set_to(parameter));
}

}  // namespace holdfast::engines::redis
