// The native layout's requests, and how their answers are read.
#include "engines/common/sentences.hpp"
#include "engines/redis/native.hpp"
#include "engines/redis/slots.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::redis {

namespace {

using resp::value;
using std::chrono::milliseconds;

template <class N>
void append_number(std::string& to, N number, int base = 10) {
  std::array<char, 24> digits{};
  to.append(digits.begin(), std::to_chars(digits.begin(), digits.end(), number, base).ptr);
}

template <class N>
N number(std::string_view text) {
  N out{};
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

// A number comes as an integer or, where Lua's numbers are too small, as text.
std::int64_t number(const value& v) {
  return v.what == value::kind::integer ? v.integer : number<std::int64_t>(v.text);
}

std::string_view word(std::string_view& text) {
  const auto end = std::min(text.find(' '), text.size());
  const auto out = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return out;
}

}  // namespace

std::optional<owner_id> parse_owner(std::string_view text) {
  if (text.size() < 34 || text[32] != '-') return std::nullopt;
  owner_id out;
  const auto hex = [](std::string_view digits, std::uint64_t& into) {
    const auto* end = digits.data() + digits.size();
    const auto [at, code] = std::from_chars(digits.data(), end, into, 16);
    return code == std::errc{} && at == end;
  };
  if (!hex(text.substr(0, 16), out.client[0]) || !hex(text.substr(16, 16), out.client[1]) ||
      !hex(text.substr(33), out.sequence))
    return std::nullopt;
  return out;
}

std::string native::key(char kind, std::string_view name) const {
  std::string out;
  out.reserve(how_.prefix.size() + 8 + name.size());
  out.append(how_.prefix);
  if (how_.in_cluster) out.append(tag_text(tag_of(name)));
  return out.append(1, kind).append(1, ':').append(name);
}

std::string native::token_key(std::string_view name) const {
  if (!how_.in_cluster) return how_.prefix + "t";
  return fmt::format("{}{}t", how_.prefix, tag_text(tag_of(name)));
}

std::string native::client_key(char kind) const {
  std::string tag;
  if (how_.in_cluster) {
    const std::lock_guard lock{tags_guard_};
    tag = tag_text(tags_.empty() ? 0 : tags_.front());
  }
  return fmt::format("{}{}{}:{}", how_.prefix, tag, kind, client_);
}

std::string native::owner_text(const owner_id& owner) const {
  // Ours but for an operator's look at others.
  std::string out;
  out.reserve(64);
  out.append(client_).append(1, '-');
  append_number(out, owner.sequence, 16);
  return out;
}

// "GRACE SINCE HOST PID LABEL". The time is the server's, as well as we know it: it is for people to read.
std::string native::meta(std::string_view label) const {
  const auto now = nanoseconds{clock_.recent().time_since_epoch()}.count();
  const auto since = (now - server_offset_.load(std::memory_order_relaxed)) / 1'000'000;
  std::string out;
  out.reserve(64 + host_and_pid_.size() + label.size());
  append_number(out, in_ms(how_.grace));
  out += ' ';
  append_number(out, since);
  return out.append(1, ' ').append(host_and_pid_).append(label);
}

command native::enter_command(const request& ask) const {
  command out{scripts::enter(), 2, 4};
  out << key('l', ask.name) << token_key(ask.name) << owner_text(ask.owner) << in_ms(ask.ttl)
      << meta(ask.label);
  if (ask.mode == lock_mode::exclusive && ask.order == queue_order::fifo && ask.priority == 0 &&
      ask.wait && ask.replaces == nullptr) {
    out << "x 1073741824 1073741824 f 0 1 -";
  } else {
    const bool upgrades = ask.replaces != nullptr;
    out << fmt::format("{} {} {} {} {} {} {}", upgrades ? 'X' : letter_of(ask.mode), ask.weight,
                       ask.capacity, ask.order == queue_order::fifo ? 'f' : 'b', ask.priority,
                       int{ask.wait}, upgrades ? owner_text(ask.replaces->owner) : "-");
  }
  if (how_.wait_replicas == 0) return out;
  out.then({"WAIT", std::to_string(how_.wait_replicas), std::to_string(how_.wait_timeout.count())});
  out.keep_errors();  // a WAIT that is refused says nothing about what was done before it
  return out;
}

command native::settle_command(const request& ask) const {
  command out{scripts::settle(), 2, 2};
  out << key('l', ask.name) << token_key(ask.name) << owner_text(ask.owner)
      << late_requests::mark_kept.count();
  return out;
}

// The owner as the compact form begins: "xOWNER ".
command native::release_command(std::string_view name, const owner_id& owner) const {
  const bool in_doubt = late_requests_.has(owner);
  command out{scripts::release(), 2, in_doubt ? 2U : 1U};
  out << key('l', name) << token_key(name) << 'x' + owner_text(owner) + ' ';
  if (in_doubt) out << late_requests::mark_kept.count();
  return out;
}

command native::leave_command(std::string_view name, const owner_id& owner, bool place_only) const {
  command out{scripts::leave(), 2, 3};
  out << key('l', name) << token_key(name) << 'x' + owner_text(owner) + ' '
      << (late_requests_.has(owner) ? std::to_string(late_requests::mark_kept.count()) : "")
      << (place_only ? "1" : "0");
  return out;
}

command native::enter_all_command(std::span<const request> asks) const {
  command out{scripts::enter_all(), asks.size() + 1, 2 * asks.size() + 1};
  out << token_key(asks.front().name);
  for (const auto& ask : asks) out << key('l', ask.name);
  out << in_ms(asks.front().ttl);
  for (const auto& ask : asks) out << owner_text(ask.owner) << meta(ask.label);
  return out;
}

command native::count_command(const counter_request& ask) const {
  constexpr std::array<std::string_view, 6> ops{"read", "create",           "store",
                                                "add",  "compare_exchange", "erase"};
  command out{scripts::count(), 3, 4};
  out << key('n', ask.name) << token_key(ask.name) << key('p', ask.name)
      << ops[static_cast<std::size_t>(ask.op)] << ask.operand << ask.expected << in_ms(ask.keep);
  return out;
}

command native::observe_command(watch_kind kind, std::string_view name) const {
  const bool counts = kind == watch_kind::counter;
  command out{scripts::observe(), counts ? 3U : 2U, 1};
  out << key(counts ? 'n' : 'l', name) << token_key(name);
  if (counts) out << key('p', name);
  out << client_;
  return out;
}

// ---- answers

// An error reply to the request itself, where error replies are kept.
result<answer> native::unless_refused(result<answer> got, std::string_view name) const {
  if (got && got->values.front().is_error())
    return connections_->refusal(got->values.front().text, name);
  return got;
}

// The answers are described beside the scripts.
result<entered> native::read_entered(const result<answer>& got, const request& ask,
                                     const sending& sent) {
  late_requests_.note(ask.owner, got);
  if (!got) return got.error();
  const auto& v = got->values.front();
  entered out;
  const auto granted = [&](std::int64_t token, steady_time from) {
    out.what = entered::kind::granted;
    out.granted = make_grant(ask.name, ask.owner, ask.mode, ask.weight,
                             {static_cast<std::uint64_t>(token)}, from, ask.ttl, sent.session);
  };
  if (v.what == value::kind::integer && v.integer >= 0) {
    if (v.integer > 0) granted(v.integer, sent.at);
    return out;
  }
  const auto kind = v.items.size() < 3 ? 0 : number(v.items[0]);
  if (kind != 1 && kind != 2) return unexpected_reply(ask.name, how_.url);
  if (kind == 2) {
    if (v.items.size() < 4) return unexpected_reply(ask.name, how_.url);
    note_server_time(number(v.items[2]), sent);
    out.what = entered::kind::waiting;
    out.waiting = ticket{ask.name, ask.owner, static_cast<std::uint64_t>(number(v.items[3]))};
    out.waiting.recheck_at = clock_.now() + milliseconds{number(v.items[1])};
    return out;
  }
  waits_->forget(ask.owner.sequence);
  granted(number(v.items[1]), sent.at + milliseconds{number(v.items[2])} - ask.ttl);
  if (v.items.size() >= 6) {  // settled: the store knows best
    const auto ttl = milliseconds{number(v.items[5])};
    out.granted = make_grant(ask.name, ask.owner, mode_in(v.items[3].text),
                             static_cast<std::uint64_t>(number(v.items[4])), out.granted.token,
                             sent.at + milliseconds{number(v.items[2])} - ttl, ttl, sent.session);
  }
  return out;
}

result<std::vector<grant>> native::read_all(const result<answer>& got,
                                            std::span<const request> asks,
                                            const sending& sent) const {
  if (!got) return got.error();
  const auto& tokens = got->values.front().items;
  std::vector<grant> out;
  if (tokens.empty()) return out;
  if (tokens.size() != asks.size()) return unexpected_reply(asks.front().name, how_.url);
  for (std::size_t i = 0; i < asks.size(); ++i)
    out.push_back(make_grant(asks[i].name, asks[i].owner, asks[i].mode, asks[i].weight,
                             {static_cast<std::uint64_t>(number(tokens[i]))}, sent.at, asks[i].ttl,
                             sent.session));
  return out;
}

sending native::send_now() const {
  const auto session = belief_.current();  // first: the request is not older than its session
  return {clock_.now(), session};
}

void native::forget(const owner_id& owner) {
  late_requests_.forget(owner);
  waits_->forget(owner.sequence);
}

result<void> native::read_left(const result<answer>& got, const ticket& place) {
  if (!got) return got.error();
  if (place.replacing) {
    late_requests_.forget(place.owner);  // the mark is there, and keeps out nothing else
  } else {
    forget(place.owner);
  }
  return {};
}

result<void> native::read_released(const result<answer>& got, const grant& held) {
  if (!got) return got.error();
  forget(held.owner);
  if (number(got->values.front()) == 1) return {};
  return lock_not_held(held.name, how_.url, held.owner);
}

result<counter> native::read_count(const result<answer>& got, std::string_view name) const {
  if (!got) return got.error();
  const auto& v = got->values.front();
  if (v.items.size() != 4) return unexpected_reply(name, how_.url);
  counter out;
  out.exists = number(v.items[0]) == 1;
  out.applied = number(v.items[1]) == 1;
  out.value = number(v.items[2]);
  out.version = static_cast<std::uint64_t>(number(v.items[3]));
  return out;
}

// ---- the operators' view

namespace {

// "GRACE SINCE HOST PID LABEL"
void read_meta(std::string_view text, std::int64_t server_ms, holder_info& into) {
  word(text);
  into.age = milliseconds{std::max<std::int64_t>(server_ms - number<std::int64_t>(word(text)), 0)};
  into.host = word(text);
  into.pid = number<std::int64_t>(word(text));
  into.label = text;
}

// What both kinds of record begin with: "MODE WEIGHT".
std::optional<holder_info> begin_entry(std::string_view owner, std::string_view& record) {
  const auto id = parse_owner(owner);
  if (!id) return std::nullopt;
  holder_info out;
  out.owner = *id;
  out.mode = mode_in(word(record));
  out.weight = number<std::uint64_t>(word(record));
  return out;
}

std::optional<holder_info> read_holder(std::string_view owner, std::string_view record,
                                       std::int64_t server_ms) {
  auto out = begin_entry(owner, record);
  if (!out) return out;
  out->token.value = number<std::uint64_t>(word(record));
  word(record);  // ttl
  read_meta(record, server_ms, *out);
  return out;
}

std::optional<holder_info> read_waiter(std::string_view owner, std::string_view record,
                                       std::int64_t server_ms) {
  auto out = begin_entry(owner, record);
  if (!out) return out;
  word(record);  // ttl
  out->priority = number<int>(word(record));
  word(record);  // replaces
  word(record);  // member
  read_meta(record, server_ms, *out);
  return out;
}

std::string_view find(const std::vector<value>& pairs, std::string_view key) {
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
    if (pairs[i].text == key) return pairs[i + 1].text;
  return {};
}

}  // namespace

std::optional<lock_info> native::read_info(const value& got, std::string_view name) const {
  if (got.items.size() < 3) return std::nullopt;
  lock_info out;
  out.name = name;
  out.capacity = rw_capacity;
  const auto now = number(got.items[2]);
  std::string_view text = got.items[0].text;
  if (text.starts_with('x')) {
    text.remove_prefix(1);
    const auto owner = word(text);
    auto holder = read_holder(owner, fmt::format("x {} {}", rw_capacity, text), now);
    if (!holder) return std::nullopt;
    holder->expires_in = milliseconds{number(got.items[1])};
    out.version = holder->token.value;
    out.holders.push_back(std::move(*holder));
    return out;
  }
  if (!text.starts_with('m') || got.items.size() < 7) return std::nullopt;
  text.remove_prefix(1);
  out.capacity = number<std::uint64_t>(word(text));
  out.version = number<std::uint64_t>(text);
  const auto& ends = got.items[4].items;
  for (std::size_t i = 0; i + 1 < ends.size(); i += 2) {
    const auto left = static_cast<std::int64_t>(number<double>(ends[i + 1].text)) - now;
    auto holder = read_holder(ends[i].text, find(got.items[3].items, ends[i].text), now);
    if (!holder || left <= 0) continue;
    holder->expires_in = milliseconds{left};
    out.holders.push_back(std::move(*holder));
  }
  std::ranges::sort(out.holders, {}, &holder_info::token);
  for (const auto& member : got.items[5].items) {
    const auto owner = member.text.substr(std::min<std::size_t>(16, member.text.size()));
    if (auto waiter = read_waiter(owner, find(got.items[6].items, owner), now))
      out.waiters.push_back(std::move(*waiter));
  }
  if (out.holders.empty() && out.waiters.empty()) return std::nullopt;
  return out;
}

}  // namespace holdfast::engines::redis
