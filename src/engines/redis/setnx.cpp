#include "engines/redis/setnx.hpp"

#include "engines/redis/native.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

namespace holdfast::engines::redis {

namespace {

using std::chrono::milliseconds;

constexpr nanoseconds shortest_pause = milliseconds{5};
constexpr nanoseconds longest_pause = milliseconds{50};

// The clock on the wall: one recipe stores it.
std::int64_t wall_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool read_digits(std::string_view text, std::uint64_t& into) {
  const auto* end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, into);
  return code == std::errc{} && at == end;
}

capabilities describe(const recipe& by, const settings& how, capabilities caps) {
  caps.wakeup = wakeup_kind::poll;
  caps.token = token_origin::server_time;
  caps.token_scope =
      "The server's clock in microseconds when the lock was taken, or one more than the last token "
      "(kept for a minute at holdfast-token): strictly rising over all names, also after a restart "
      "without data, as long as that clock does not step back by more than that. Other programs "
      "that take the lock get none.";
  if (how.is_cluster())
    caps.token_scope =
        "As on one server, for each name by itself: the clock of the node in microseconds when the "
        "lock was taken, or one more than the last token, which is kept for a minute. Other "
        "programs that take the lock get none.";
  by.describe(caps);
  caps.exclusion += failover_words(how);
  caps.limits +=
      " The value of the key is the owner and its token; there is no place for labels, so the "
      "value "
      "of an election's leader is empty. A leader of another make has no term: observe does not "
      "see it come or go.";
  return caps;
}

}  // namespace

setnx::setnx(const recipe& by, const settings& how, const engine_config& config)
    : compat_layout(how, config, describe(by, how, common_caps(how))), by_(by) {}

result<std::unique_ptr<cluster_part>> setnx::open(const recipe& by, const settings& how,
                                                  const engine_config& config) {
  std::unique_ptr<setnx> self{new setnx{by, how, config}};
  if (auto there = self->connect(); !there) return std::move(there).error();
  return std::unique_ptr<cluster_part>{std::move(self)};
}

// ---- requests

// "32 hex digits-sequence"; in getset the value as a whole is a decimal number, for clients that read it as one.
std::string setnx::owner_text(const owner_id& owner) const {
  if (!by_.is_decimal_owner) return to_string(owner);
  return fmt::format("{:020}{:020}{:020}", owner.client[0], owner.client[1], owner.sequence);
}

// "OWNER:TOKEN", or "ENDS.OWNERTOKEN" in decimal digits.
std::optional<setnx::written> setnx::read_value(std::string_view value) const {
  written out;
  if (!by_.is_decimal_owner) {
    const auto colon = value.find(':');
    const auto owner = parse_owner(value.substr(0, colon));
    if (!owner || colon == std::string_view::npos) return std::nullopt;
    out.owner = *owner;
    return read_digits(value.substr(colon + 1), out.token.value) ? std::optional{out}
                                                                 : std::nullopt;
  }
  const auto point = value.find('.');
  if (point == std::string_view::npos || value.size() - point <= 61) return std::nullopt;
  const auto digits = value.substr(point + 1);
  if (!read_digits(digits.substr(0, 20), out.owner.client[0]) ||
      !read_digits(digits.substr(20, 20), out.owner.client[1]) ||
      !read_digits(digits.substr(40, 20), out.owner.sequence) ||
      !read_digits(digits.substr(60), out.token.value))
    return std::nullopt;
  return out;
}

std::int64_t setnx::rounded(nanoseconds ttl) const {
  const auto grains = (ttl + by_.grain - nanoseconds{1}) / by_.grain;
  return in_ms(grains * by_.grain);
}

result<void> setnx::check(const request& ask) const {
  if (ask.name == token_counter)
    return not_done{errc::misconfigured,
                    fmt::format("Lock {} on {}: this name belongs to the counter of the tokens; "
                                "choose another.",
                                support::quoted(ask.name), how_.url)};
  if (ask.mode == lock_mode::exclusive && ask.replaces == nullptr) return {};
  return unsupported(ask.name, fmt::format("locks of the mode {}", to_string(ask.mode)));
}

command setnx::owner_command(const script& what, std::string_view name,
                             const owner_id& owner) const {
  command out{what, 1, 2};
  out << key(name) << wall_ms() << owner_text(owner);
  return out;
}

command setnx::enter_command(const request& ask) const {
  command out{by_.enter, 3, 3};
  out << key(ask.name) << (how_.in_cluster ? after(ask.name, token_counter) : key(token_counter))
      << mark_key(ask.name, ask.owner) << wall_ms() << owner_text(ask.owner) << rounded(ask.ttl);
  return out;
}

command setnx::settle_command(const request& ask) const {
  return owner_command(by_.settle, ask.name, ask.owner);
}

std::vector<const script*> setnx::release_scripts() const { return {&by_.release}; }

command setnx::release_command(const grant& held) const {
  return owner_command(by_.release, held.name, held.owner);
}

// The store knows no waiters, but a grant whose answer got lost must not stay behind.
std::optional<command> setnx::leave_command(const ticket& place) const {
  return owner_command(by_.release, place.name, place.owner);
}

command setnx::renew_command(std::span<const renewal> batch) const {
  command out{by_.renew, batch.size(), 1 + 2 * batch.size()};
  for (const auto& asked : batch) out << key(asked.held->name);
  out << wall_ms();
  for (const auto& asked : batch) out << owner_text(asked.held->owner) << rounded(asked.held->ttl);
  return out;
}

command setnx::inspect_command(std::string_view name) const {
  command out{by_.inspect, 1, 1};
  out << key(name) << wall_ms();
  return out;
}

command setnx::revoke_command(std::string_view name) const {
  command out{by_.revoke, 1, 1};
  out << key(name) << wall_ms();
  return out;
}

// ---- answers

// Owner and token are all that the store knows. What is no owner of ours is shown as it is.
lock_info setnx::read_info(const resp::value& got, std::string_view name) const {
  lock_info out;
  out.name = name;
  out.capacity = rw_capacity;
  if (got.items.size() < 2) return out;
  const auto value = got.items[0].text;
  const auto left = number_in(got.items[1]);
  if (left == -2) return out;  // it is over, and has not been taken since
  holder_info holder;
  holder.weight = rw_capacity;
  holder.expires_in = time_left(left);
  const auto ours = read_value(value);
  if (ours) {
    holder.owner = ours->owner;
    holder.token = ours->token;
  } else {
    holder.owner_text = shown_owner(value);
  }
  // The value changes with the holder (and in getset with every renewal, so there only the owner counts).
  const auto holding = ours ? to_string(ours->owner) : std::string{value};
  out.version = std::hash<std::string>{}(holding) | 1U;
  out.holders.push_back(std::move(holder));
  return out;
}

// ---- waiting

// Soon, but not at the same time as all others; at the holder's end at the latest.
nanoseconds setnx::patience(std::optional<nanoseconds> left) const {
  thread_local std::minstd_rand random{std::random_device{}()};
  const nanoseconds pause{std::uniform_int_distribution<std::int64_t>{
      shortest_pause.count(), longest_pause.count()}(random)};
  return left ? std::min<nanoseconds>(pause, *left + milliseconds{1}) : pause;
}

// No message comes: core asks again at recheck_at.
void setnx::start_await(const ticket& place, const call& limits,
                        completion<progress>& done) noexcept {
  waits_->for_grant(place.owner.sequence, limits,
                    [&done](const std::optional<pushed_grant>&) { done.complete(progress{}); });
}

}  // namespace holdfast::engines::redis
