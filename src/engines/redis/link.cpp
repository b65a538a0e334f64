#include "engines/redis/link.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

namespace holdfast::engines::redis {

namespace {

namespace resp = net::resp;
using namespace std::chrono_literals;

struct reply_kind {
  std::string_view prefix;
  errc code;
  std::string_view advice;
};

// What the server's error codes mean to the caller. The first row whose prefix fits applies.
constexpr std::array reply_kinds{
    reply_kind{"NOAUTH", errc::denied, "give a password (password_file, password_env)"},
    reply_kind{"WRONGPASS", errc::denied, "check user and password"},
    reply_kind{"NOPERM", errc::denied, "the user needs the rights listed in docs/guides/redis.md"},
    reply_kind{"ERR The user executing the script", errc::denied,
               "the user needs the rights listed in docs/guides/redis.md"},
    reply_kind{"ERR ACL failure in script", errc::denied,
               "the user needs the rights listed in docs/guides/redis.md"},
    reply_kind{"ERR AUTH", errc::denied, "check user and password"},
    reply_kind{"ERR invalid password", errc::denied, "check user and password"},
    reply_kind{"LOADING", errc::unavailable, "it is still loading its data"},
    reply_kind{"BUSY", errc::unavailable, "a script of somebody blocks it"},
    reply_kind{"READONLY", errc::unavailable, "this is a replica; name the master"},
    reply_kind{"OOM", errc::unavailable, "it has reached maxmemory"},
    reply_kind{"MISCONF", errc::unavailable, "it cannot save its data and refuses writes"},
    reply_kind{"NOREPLICAS", errc::unavailable, "too few replicas are in reach"},
    reply_kind{"MASTERDOWN", errc::unavailable, "this replica has lost its master"},
    reply_kind{"CLUSTERDOWN", errc::unavailable, "the cluster is down"},
    reply_kind{"TRYAGAIN", errc::unavailable, "the cluster is being changed"},
    reply_kind{"MOVED", errc::misconfigured, "Redis Cluster is not supported"},
    reply_kind{"ASK", errc::misconfigured, "Redis Cluster is not supported"},
    reply_kind{"CROSSSLOT", errc::misconfigured, "Redis Cluster is not supported"},
    reply_kind{"WRONGTYPE", errc::misconfigured,
               "the key of this lock is used for something else; choose another name or prefix"},
    reply_kind{"NOPROTO", errc::misconfigured, "Redis 6.0 or newer is needed"},
    reply_kind{"ERR unknown command 'HELLO'", errc::misconfigured, "Redis 6.0 or newer is needed"},
    reply_kind{"ERR unknown command `HELLO`", errc::misconfigured, "Redis 6.0 or newer is needed"},
    reply_kind{"ERR DB index", errc::misconfigured, "it has no such database"},
    reply_kind{"HFGONE", errc::not_held, "the grant to be upgraded is gone"},
    reply_kind{"HFCAPACITY", errc::misconfigured,
               "it is in use with another capacity; all users of a name must agree on its kind and "
               "its permits"},
};

std::string greeting(const settings& how, bool lifts, unsigned& replies) {
  std::string out;
  if (how.password.empty()) {
    resp::append_command(out, {"HELLO", "3", "SETNAME", "holdfast"});
  } else {
    resp::append_command(out, {"HELLO", "3", "AUTH", how.user.empty() ? "default" : how.user,
                               how.password, "SETNAME", "holdfast"});
  }
  replies = 1;
  if (how.db != 0) {
    resp::append_command(out, {"SELECT", std::to_string(how.db)});
    ++replies;
  }
  if (lifts) {
    resp::append_command(out, {"EVAL", scripts::lift, "1", how.prefix + "t"});
    ++replies;
  }
  return out;
}

// A server may repeat what it was sent: Redis before 6.0 answers our login with "unknown command", and all of it.
std::string without(const std::string& secret, std::string_view reply) {
  std::string out{reply};
  if (secret.empty()) return out;
  for (auto at = out.find(secret); at != std::string::npos; at = out.find(secret, at + 3))
    out.replace(at, secret.size(), "***");
  return out;
}

std::function<result<void>(std::string_view)> judge(const settings& how) {
  return [url = how.url, secret = how.password](std::string_view frames) -> result<void> {
    while (!frames.empty()) {
      auto value = resp::take(frames);
      if (!value) return std::move(value).error();
      if (value->is_error()) return reply_error(without(secret, value->text), {}, url);
    }
    return {};
  };
}

}  // namespace

namespace {

// What a command inside a script failed with. Before Redis 7 that came wrapped up:
// "ERR Error running script (call to f_...): @user_script:4: @user_script: 4: -READONLY You can't ...".
std::string_view unwrapped(std::string_view reply) {
  constexpr std::string_view place = "@user_script";
  const auto at = reply.rfind(place);
  if (!reply.starts_with("ERR Error running script") || at == std::string_view::npos) return reply;
  const auto begin = reply.find_first_not_of(": 0123456789-", at + place.size());
  return begin == std::string_view::npos ? reply : reply.substr(begin);
}

}  // namespace

error reply_error(std::string_view reply, std::string_view name, std::string_view store) {
  const auto inner = unwrapped(reply);
  const auto about = name.empty() ? std::string{store}
                                  : fmt::format("Lock {} on {}", support::quoted(name), store);
  for (const auto& row : reply_kinds)
    if (inner.starts_with(row.prefix))
      return {row.code, fmt::format("{}: the server answered {}: {}.", about,
                                    support::quoted(reply, 160), row.advice)};
  return {errc::protocol, fmt::format("{}: the server answered {}, which is not understood here.",
                                      about, support::quoted(reply, 160))};
}

error unexpected_reply(std::string_view name, std::string_view store) {
  return {errc::protocol, fmt::format("Lock {} on {}: the server's answer has not the form that "
                                      "was asked for; is this a Redis server?",
                                      support::quoted(name), store)};
}

command::command(const script& what, std::size_t keys, std::size_t arguments)
    : what_(&what), words_(3 + keys + arguments) {
  bytes_.reserve(256 + 32 * (keys + arguments));
  resp::append_head(bytes_, words_);
  *this << "EVALSHA" << what.sha;
  head_ = bytes_.size();
  *this << static_cast<std::int64_t>(keys);
}

void command::then(std::initializer_list<std::string_view> words) {
  resp::append_command(bytes_, words);
  ++replies_;
}

void command::then(const command& other) {
  bytes_ += other.bytes_;
  replies_ += other.replies_;
}

command::command(std::string_view plain) { resp::append_command(bytes_, {plain}); }

void command::before(const command& other) {
  bytes_.insert(0, other.bytes_);
  lead_ += other.bytes_.size();
  head_ += other.bytes_.size();
  replies_ += other.replies_;
}

bool command::spell_out() {
  if (what_ == nullptr) return false;
  std::string whole;
  whole.reserve(bytes_.size() + what_->text.size() + 32);
  whole.append(bytes_, 0, lead_);
  resp::append_head(whole, words_);
  resp::append_word(whole, std::string_view{"EVAL"});
  resp::append_word(whole, what_->text);
  whole.append(bytes_, head_);
  bytes_ = std::move(whole);
  what_ = nullptr;
  return true;
}

result<std::unique_ptr<link>> link::start(const settings& how) {
  auto reactor = net::reactor::start();
  if (!reactor) return std::move(reactor).error();
  std::unique_ptr<link> self{new link{how}};
  self->reactor_ = std::move(*reactor);
  return self;
}

void link::connect(bool lifts, const stream_setup& stream, std::span<const script* const> ready) {
  net::channel_options options;
  options.where = how_.where;
  options.description = url_;
  options.make_framing = [] { return std::make_unique<resp::resp_framing>(); };
  options.greeting = greeting(how_, lifts, options.greeting_replies);
  options.greeted = judge(how_);
  auto to_stream = options;
  for (const auto* one : ready) {
    resp::append_command(options.greeting, {"SCRIPT", "LOAD", one->text});
    ++options.greeting_replies;
  }
  for (unsigned i = 0; i < how_.connections; ++i)
    channels_.push_back(std::make_unique<net::channel>(*reactor_, options));

  options = std::move(to_stream);
  options.greeting += stream.commands;
  options.greeting_replies += stream.replies;
  options.listener = stream.listener;
  options.keep_open = true;
  stream_ = std::make_unique<net::channel>(*reactor_, options);
}

net::channel& link::of(std::string_view name) noexcept {
  return *channels_[std::hash<std::string_view>{}(name) % channels_.size()];
}

void link::drain() noexcept {
  std::string ping, pong;
  resp::append_command(ping, {"PING"});
  const net::limits soon{std::chrono::steady_clock::now() + 1s, {}};
  for (const auto& one : channels_)
    if (one->generation() != 0) static_cast<void>(one->exchange(ping, 1, soon, pong));
}

error link::about(error why, std::string_view name) {
  if (name.empty()) return why;
  return {why.code(), fmt::format("Lock {}: {}", support::quoted(name), why.message())};
}

result<answer> link::read(std::string_view frames, unsigned count, std::string_view name) const {
  answer out;
  out.frames.reserve(
      std::max<std::size_t>(frames.size(), 64));  // on the heap, so that views survive a move
  out.frames = frames;
  std::string_view rest = out.frames;
  out.values.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    auto value = resp::take(rest);
    if (!value) return std::move(value).error();
    if (value->is_error()) return reply_error(value->text, name, url_);
    out.values.push_back(std::move(*value));
  }
  return out;
}

result<answer> link::run(net::channel& over, command& what, const call& limits,
                         std::string_view name) {
  const auto until = to_net(limits);
  thread_local std::string frames;
  auto sent = over.exchange(what.bytes(), what.replies(), until, frames);
  if (sent && is_unknown_script(frames) && what.spell_out())
    sent = over.exchange(what.bytes(), what.replies(), until, frames);
  if (!sent) return about(std::move(sent).error(), name);
  return read(frames, what.replies(), name);
}

result<std::vector<std::string>> link::scan(std::string_view head, std::string_view prefix,
                                            const call& limits) {
  std::string pattern;
  for (const auto part : {head, prefix})
    for (const char c : part) {
      if (std::string_view{"*?[]\\"}.find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
  pattern += '*';
  std::vector<std::string> names;
  std::string cursor = "0";
  do {
    const auto got = run(of(prefix), {"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"}, limits);
    if (!got) return got.error();
    const auto& page = got->values.front().items;
    if (page.size() != 2) return unexpected_reply(prefix, url_);
    cursor = page[0].text;
    for (const auto& one : page[1].items)
      names.emplace_back(one.text.substr(std::min(head.size(), one.text.size())));
  } while (cursor != "0");
  std::ranges::sort(names);  // SCAN may say a key twice
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

result<answer> link::run(net::channel& over, std::initializer_list<std::string_view> words,
                         const call& limits, std::string_view name) {
  std::string request, frames;
  resp::append_command(request, words);
  auto sent = over.exchange(request, 1, to_net(limits), frames);
  if (!sent) return about(std::move(sent).error(), name);
  return read(frames, 1, name);
}

}  // namespace holdfast::engines::redis
