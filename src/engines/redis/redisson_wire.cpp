// The layout redisson: its keys and channels, its requests, and how their answers are read.
#include "engines/redis/redisson.hpp"
#include "engines/redis/redisson_scripts.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::redis {

namespace {

using resp::value;
using std::chrono::milliseconds;

constexpr std::uint64_t most_permits_at_once = 65'536;

// "UUID:NUMBER", ours or Redisson's.
std::optional<owner_id> read_lock_owner(std::string_view text) {
  if (text.size() < 38 || text[36] != ':') return std::nullopt;
  std::string hex;
  for (const char c : text.substr(0, 36))
    if (c != '-') hex += c;
  owner_id out;
  const auto read = [](std::string_view digits, std::uint64_t& into, int base) {
    const auto* end = digits.data() + digits.size();
    const auto [at, code] = std::from_chars(digits.data(), end, into, base);
    return code == std::errc{} && at == end;
  };
  const std::string_view digits = hex;
  if (hex.size() != 32 || !read(digits.substr(0, 16), out.client[0], 16) ||
      !read(digits.substr(16), out.client[1], 16) || !read(text.substr(37), out.sequence, 10))
    return std::nullopt;
  return out;
}

std::uint64_t read_bytes(std::string_view bytes) {
  std::uint64_t out = 0;
  for (const char c : bytes) out = out << 8U | static_cast<unsigned char>(c);
  return out;
}

std::string in_hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes)
    fmt::format_to(std::back_inserter(out), "{:02x}", static_cast<unsigned char>(c));
  return out;
}

void append_bytes(std::string& to, std::uint64_t from, unsigned count) {
  while (count-- > 0) to += static_cast<char>(from >> (8 * count) & 0xffU);
}

}  // namespace

// ---- names

std::string redisson::before(std::string_view prefix, std::string_view name) const {
  const auto full = key(name);
  return full.find('{') == std::string::npos ? fmt::format("{}:{{{}}}", prefix, full)
                                             : fmt::format("{}:{}", prefix, full);
}

std::string redisson::channel_of(topic what, std::string_view name) const {
  switch (what) {
    case topic::semaphore:
      return before("redisson_sc", name);
    case topic::latch:
      return fmt::format("redisson_countdownlatch__channel__{{{}}}", key(name));
    case topic::lock:
      break;
  }
  return before("redisson_lock__channel", name);
}

std::string redisson::lock_owner(const owner_id& owner) const {
  return fmt::format("{}:{}", uuid_, owner.sequence);
}

// 8 bytes of the client and 6 of the sequence; the script adds the 2 of the permit's number.
std::string redisson::permit_owner(const owner_id& owner) {
  std::string out;
  append_bytes(out, owner.client[0], 8);
  append_bytes(out, owner.sequence, 6);
  return out;
}

// ---- requests

result<void> redisson::check(const request& ask) const {
  if (ask.mode == lock_mode::exclusive && ask.replaces == nullptr) return {};
  if (ask.mode != lock_mode::permits)
    return unsupported(ask.name, fmt::format("locks of the mode {}", to_string(ask.mode)));
  if (ask.weight <= most_permits_at_once) return {};
  return not_done{
      errc::misconfigured,
      fmt::format("Semaphore {} on {}: the layout redisson gives at most {} permits at "
                  "once, not {}.",
                  support::quoted(ask.name), how_.url, most_permits_at_once, ask.weight)};
}

command redisson::enter_command(const request& ask) const {
  const auto n = static_cast<std::int64_t>(ask.capacity);
  const auto k = static_cast<std::int64_t>(ask.weight);
  const auto ttl = in_ms(ask.ttl);
  if (ask.mode == lock_mode::exclusive) {
    command out{redisson_scripts::lock_enter(), 3, 2};
    out << key(ask.name) << token_key(ask.name) << mark_key(ask.name, ask.owner)
        << lock_owner(ask.owner) << ttl;
    return out;
  }
  const auto made = after(ask.name, "holdfast_permits");
  const auto channel = channel_of(topic::semaphore, ask.name);
  if (is_plain(ask.mode)) {
    command out{redisson_scripts::plain_enter(), 3, 4};
    out << key(ask.name) << token_key(ask.name) << made << ttl << channel << n << k;
    return out;
  }
  command out{redisson_scripts::permits_enter(), 5, 5};
  out << key(ask.name) << after(ask.name, "timeout") << token_key(ask.name) << made
      << mark_key(ask.name, ask.owner) << permit_owner(ask.owner) << ttl << channel << n << k;
  return out;
}

command redisson::settle_command(const request& ask) const {
  command out{redisson_scripts::settle(), 3, 2};
  out << key(ask.name) << after(ask.name, "timeout") << token_key(ask.name) << lock_owner(ask.owner)
      << permit_owner(ask.owner);
  return out;
}

command redisson::give_back(lock_mode mode, std::string_view name, const owner_id& owner,
                            std::uint64_t weight) const {
  const auto k = static_cast<std::int64_t>(weight);
  if (mode != lock_mode::permits) {
    command out{redisson_scripts::lock_release(), 1, 2};
    out << key(name) << lock_owner(owner) << channel_of(topic::lock, name);
    return out;
  }
  if (is_plain(mode)) {
    command out{redisson_scripts::plain_release(), 1, 2};
    out << key(name) << channel_of(topic::semaphore, name) << k;
    return out;
  }
  command out{redisson_scripts::permits_release(), 2, 3};
  out << key(name) << after(name, "timeout") << permit_owner(owner)
      << channel_of(topic::semaphore, name) << k;
  return out;
}

std::vector<const script*> redisson::release_scripts() const {
  return {&redisson_scripts::lock_release(), &redisson_scripts::permits_release(),
          &redisson_scripts::plain_release()};
}

command redisson::release_command(const grant& held) const {
  return give_back(held.mode, held.name, held.owner, held.weight);
}

// ---- tickets

std::uint64_t redisson::weight_in(const ticket& place) {
  return place.handle & ((std::uint64_t{1} << weight_bits) - 1);
}

std::uint64_t redisson::messages_before(const request& ask) const {
  const bool permits = ask.mode == lock_mode::permits;
  const auto weight = permits ? ask.weight : 0;
  if (subscriptions_->is_empty()) return weight;
  const auto what = permits ? topic::semaphore : topic::lock;
  return subscriptions_->heard(channel_of(what, ask.name)) << weight_bits | weight;
}

// The store knows no waiters, but a grant whose answer got lost must not stay behind.
std::optional<command> redisson::leave_command(const ticket& place) const {
  const auto weight = weight_in(place);
  const auto mode = weight == 0 ? lock_mode::exclusive : lock_mode::permits;
  if (is_plain(mode)) return std::nullopt;
  return give_back(mode, place.name, place.owner, weight);
}

command redisson::renew_command(std::span<const renewal> batch) const {
  command out{redisson_scripts::renew(), batch.size(), 3 * batch.size()};
  for (const auto& asked : batch) {
    const auto& held = *asked.held;
    const bool expires = held.mode == lock_mode::permits && !is_plain(held.mode);
    out << (expires ? after(held.name, "timeout") : key(held.name));
  }
  for (const auto& asked : batch) {
    const auto& held = *asked.held;
    const bool permits = held.mode == lock_mode::permits;
    const auto k = is_plain(held.mode) ? std::int64_t{-1} : static_cast<std::int64_t>(held.weight);
    out << (permits ? permit_owner(held.owner) : lock_owner(held.owner)) << in_ms(held.ttl)
        << (permits ? k : std::int64_t{0});
  }
  return out;
}

command redisson::inspect_command(std::string_view name) const {
  command out{redisson_scripts::inspect(), 5, 1};
  out << key(name) << after(name, "timeout") << token_key(name) << after(name, "holdfast_permits")
      << count_mark(name) << std::int64_t{how_.plain_semaphores};
  return out;
}

command redisson::revoke_command(std::string_view name) const {
  command out{redisson_scripts::revoke(), 5, 3};
  out << key(name) << after(name, "timeout") << token_key(name) << after(name, "holdfast_permits")
      << count_mark(name) << channel_of(topic::lock, name) << channel_of(topic::semaphore, name)
      << std::int64_t{how_.plain_semaphores};
  return out;
}

command redisson::count_command(const counter_request& ask) const {
  constexpr std::array<std::string_view, 6> ops{"read", "create",           "store",
                                                "add",  "compare_exchange", "erase"};
  command out{redisson_scripts::count(), 2, 5};
  out << key(ask.name) << count_mark(ask.name) << ops[static_cast<std::size_t>(ask.op)]
      << ask.operand << ask.expected << in_ms(ask.keep) << channel_of(topic::latch, ask.name);
  return out;
}

// ---- answers

lock_info redisson::read_info(const value& got, std::string_view name) const {
  lock_info out;
  out.name = name;
  out.capacity = rw_capacity;
  if (got.items.size() < 4) return out;
  const auto kind = got.items[0].text;
  const auto& pairs = got.items[1].items;
  const auto number = number_in(got.items[2]);
  const fencing_token last{static_cast<std::uint64_t>(number_in(got.items[3]))};
  std::size_t mixed = last.value;
  const auto mix = [&mixed](std::string_view text) {
    mixed = mixed * 31 + std::hash<std::string_view>{}(text);
  };
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) mix(pairs[i].text);
  if (kind == "permits") {
    read_permits(pairs, last, out);
    out.capacity = static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0)) + pairs.size() / 2;
  } else if (kind == "plain" && got.items.size() > 4) {
    out.capacity = static_cast<std::uint64_t>(std::max<std::int64_t>(number_in(got.items[4]), 0));
    out.free_permits = static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0));
    mix(std::to_string(number));
  } else {
    read_lock(pairs, last, time_left(number), out);
  }
  out.version = out.holders.empty() && !out.free_permits ? 0 : mixed | 1U;
  return out;
}

// One owner, or those of an RReadWriteLock, which has a field "mode" and writes the writer as "OWNER:write".
void redisson::read_lock(const std::vector<value>& pairs, fencing_token last, nanoseconds left,
                         lock_info& into) {
  const auto mode_at = [&] {
    std::size_t at = 0;
    while (at + 1 < pairs.size() && pairs[at].text != "mode") at += 2;
    return at;
  }();
  const bool has_readers = mode_at + 1 < pairs.size();
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (i == mode_at) continue;
    constexpr std::string_view writes = ":write";
    auto written = pairs[i].text;
    const bool is_writer = !has_readers || written.ends_with(writes);
    if (has_readers && is_writer) written.remove_suffix(writes.size());
    holder_info holder;
    holder.mode = is_writer ? lock_mode::exclusive : lock_mode::shared;
    holder.weight = is_writer ? rw_capacity : 1;
    if (!has_readers) holder.token = last;
    holder.expires_in = left;
    holder.owner = read_lock_owner(written).value_or(owner_id{});
    holder.owner_text = shown_owner(written);
    into.holders.push_back(std::move(holder));
  }
}

// Ids in the order of their ends; the ids of an owner begin with the same 14 bytes. Only 8 of them are the client's.
// Java shows an id as its bytes in hex.
void redisson::read_permits(const std::vector<value>& pairs, fencing_token last,
                            lock_info& into) const {
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const auto id = pairs[i].text;
    owner_id owner;
    owner.client[0] = read_bytes(id.substr(0, std::min<std::size_t>(8, id.size())));
    if (owner.client[0] == client_[0]) owner.client[1] = client_[1];
    if (id.size() >= 14) owner.sequence = read_bytes(id.substr(8, 6));
    const auto known = std::ranges::find(into.holders, owner, &holder_info::owner);
    if (known != into.holders.end()) {
      ++known->weight;
      continue;
    }
    holder_info holder;
    holder.owner = owner;
    holder.owner_text = in_hex(id);
    holder.mode = lock_mode::permits;
    holder.weight = 1;
    holder.token = last;  // at most
    holder.expires_in = time_left(number_in(pairs[i + 1]));
    into.holders.push_back(std::move(holder));
  }
}

result<counter> redisson::read_count(const result<answer>& got, std::string_view name) const {
  if (!got) return got.error();
  const auto& items = got->values.front().items;
  if (items.size() != 3) return unexpected_reply(name, how_.url);
  counter out;
  out.exists = number_in(items[0]) == 1;
  out.applied = number_in(items[1]) == 1;
  out.value = number_in(items[2]);
  out.version = out.exists ? static_cast<std::uint64_t>(out.value) + 1 : 0;
  return out;
}

}  // namespace holdfast::engines::redis
