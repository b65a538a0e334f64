#include "engines/redis/redisson.hpp"

#include "engines/common/sentences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

// Messages are pushed; this is for a message that was lost unnoticed.
constexpr nanoseconds longest_wait = 5s;
// A count that Redisson's clients take down is published when it is zero only.
constexpr nanoseconds between_counts = 1s;
constexpr nanoseconds between_locks = 250ms;
constexpr std::uint64_t is_watcher = std::uint64_t{1} << 63U;

capabilities describe(const settings& how, capabilities caps) {
  caps.permits = caps.counters = true;
  caps.counters_apart = false;
  caps.wakeup = wakeup_kind::push;
  caps.token = token_origin::counter;
  caps.exclusion =
      "While the server keeps its data and its clock neither jumps nor runs more than 1 % apart "
      "from ours. A server that loses data (restart without persistence, eviction, fail-over to a "
      "replica that lagged) may grant a lock twice.";
  caps.exclusion += failover_words(how);
  caps.token_scope =
      "Strictly rising per name, as RFencedLock's: while the server keeps the key "
      "redisson_lock_token:{name}. Java programs that take the lock as a plain RLock get none; "
      "while "
      "they hold it, inspect and an election show the last one that was given.";
  caps.limits =
      "The first waiter that asks after a release has the lock: there is no order. Dead holders "
      "are noticed after their ttl. A name is a lock, a semaphore or a counter, not two of them. "
      "Token counters, semaphores and counts made by Redisson have no expiry. ";
  caps.limits +=
      how.plain_semaphores
          ? "The permits of ?semaphore=plain (RSemaphore) have neither owner nor expiry: a client "
            "that dies, or whose request is never answered, may take its permits with it for good. "
            "The store shows how many are free, and of how many if a client of ours has made the "
            "semaphore; only then is that number checked. None can be taken away. "
          : "All users of a semaphore must name the same number of permits. Redisson's clients "
            "judge the end of a permit by their own wall clocks. ";
  caps.limits +=
      "A latch that Redisson's clients have made and opened before a client of ours looked at it "
      "counts as not made yet. A request for a lock or for permits with an owner that was "
      "given up and is delivered within ten minutes has no effect; one that a proxy delivers still "
      "later may take it for the length of its ttl. There is no place for labels, so the value of "
      "an "
      "election's leader is empty.";
  return caps;
}

std::string uuid_of(const std::array<std::uint64_t, 2>& client) {
  const auto hex = fmt::format("{:016x}{:016x}", client[0], client[1]);
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20));
}

}  // namespace

redisson::redisson(const settings& how, const engine_config& config)
    : compat_layout(how, config, describe(how, common_caps(how))),
      client_(config.client),
      uuid_(uuid_of(config.client)) {}

result<std::unique_ptr<cluster_part>> redisson::open(const settings& how,
                                                     const engine_config& config) {
  std::unique_ptr<redisson> self{new redisson{how, config}};
  const auto prepare = [&made = *self] {
    made.subscriptions_ = std::make_unique<subscriptions>(*made.connections_, *made.waits_);
  };
  if (auto there = self->connect(prepare); !there) return std::move(there).error();
  return std::unique_ptr<cluster_part>{std::move(self)};
}

redisson::~redisson() {
  if (subscriptions_) subscriptions_->close();
  disconnect();
}

// ---- waiting

nanoseconds redisson::patience(std::optional<nanoseconds> left) const {
  return left ? std::min<nanoseconds>(*left + 1ms, longest_wait) : longest_wait;
}

void redisson::start_await(const ticket& place, const call& limits,
                           completion<progress>& done) noexcept {
  call until = limits;
  until.deadline = std::min(limits.deadline, place.recheck_at);
  const auto what = weight_in(place) == 0 ? topic::lock : topic::semaphore;
  subscriptions_->listen(channel_of(what, place.name), place.owner.sequence,
                         place.handle >> weight_bits, until, [&done](result<void> heard) {
                           if (heard) return done.complete(progress{});
                           done.complete(std::move(heard).error());
                         });
}

// ---- counters and watching

operation<counter> redisson::do_count(const counter_request& ask, invocation how) {
  auto what = count_command(ask);
  const auto got = co_await connections_->ask(connections_->of(ask.name), what, ask.name, how);
  co_return read_count(got, ask.name);
}

// Those that are marked as counted. A number that Redisson has made, and at which no client of ours has looked in the
// last 24 hours, may as well be a semaphore's or a plain one's.
operation<std::vector<counter_info>> redisson::do_list_counters(std::string_view prefix,
                                                                std::size_t limit, invocation how) {
  if (!caps_.listing) co_return cannot_list("latch", "latches");
  auto names = co_await counted_names(prefix, how);
  if (!names) co_return std::move(names).error();
  std::vector<counter_info> out;
  for (const auto& name : *names) {
    if (out.size() >= limit) break;
    auto seen = co_await look_at_count(name, how);
    if (!seen) co_return std::move(seen).error();
    if (*seen) out.push_back(std::move(**seen));
  }
  co_return out;
}

// The key of a mark begins with a brace or, where the name has one, with the name: see after().
operation<std::vector<std::string>> redisson::counted_names(std::string_view prefix,
                                                            invocation how) {
  static constexpr std::array<std::string_view, 2> braces{"{", ""};
  std::vector<std::string> out;
  for (const auto brace : braces) {
    const auto head = std::string{brace} + how_.prefix;
    auto keys = co_await connections_->scan(head, prefix, how);
    if (!keys) co_return std::move(keys).error();
    const auto end = fmt::format("{}:{}", brace.empty() ? "" : "}", count_suffix);
    for (auto& found : *keys) {
      if (!found.ends_with(end)) continue;
      auto name = found.substr(0, found.size() - end.size());
      if (count_mark(name) == head + found) out.push_back(std::move(name));
    }
  }
  std::ranges::sort(out);
  co_return out;
}

// Changes nothing, unlike a read by count(), which would mark it.
operation<std::optional<counter_info>> redisson::look_at_count(const std::string& name,
                                                               invocation how) {
  command what({"GET", key(name)});
  what.then({"PTTL", key(name)});
  what.then({"PTTL", count_mark(name)});
  what.keep_errors();  // the name may be a lock's by now
  const auto got = co_await connections_->ask(connections_->of(name), what, name, how);
  if (!got) co_return got.error();
  if (const auto* refused = refusal_in(*got)) co_return reply_error(refused->text, name, how_.url);
  const auto& values = got->values;
  std::optional<counter_info> out;
  if (!is_there(values[2])) co_return out;
  if (!is_there(values[1])) {
    out = counter_info{name, 0, time_left(values[2].integer)};
  } else if (const auto value = count_in(values[0])) {
    out = counter_info{name, *value, time_left(values[1].integer)};
  }
  co_return out;
}

std::uint64_t redisson::messages_so_far(watch_kind kind, std::string_view name) const {
  const auto what = kind == watch_kind::counter ? topic::latch : topic::lock;
  return subscriptions_->heard(channel_of(what, name));
}

void redisson::look(watch_kind kind, std::string_view name, const call& limits, on_version done) {
  if (kind == watch_kind::lock) return compat_layout::look(kind, name, limits, std::move(done));
  counter_request ask;
  ask.name = name;
  connections_->post(connections_->of(name), count_command(ask), limits, name,
                     [this, name, done = std::move(done)](const result<answer>& got) {
                       const auto now = read_count(got, name);
                       if (!now) return done(now.error());
                       done(now->version);
                     });
}

// Releases and opened latches are told, the rest is looked for.
void redisson::wait_for_change(watch_kind kind, std::string_view name, std::uint64_t heard,
                               const call& limits, on_wait_over done) {
  const bool counts = kind == watch_kind::counter;
  call until = limits;
  until.deadline = std::min(limits.deadline, std::chrono::steady_clock::now() +
                                                 (counts ? between_counts : between_locks));
  subscriptions_->listen(channel_of(counts ? topic::latch : topic::lock, name),
                         is_watcher | ++last_watcher_, heard, until, std::move(done));
}

// ---- RSemaphore

void redisson::note_granted(const request& ask) {
  if (!is_plain(ask.mode)) return;
  const std::lock_guard lock{plain_guard_};
  plain_held_[ask.owner.sequence] = ask.weight;
}

void redisson::note_released(const grant& held, const result<void>& how) {
  if (!is_plain(held.mode) || (!how && how.error().code() == errc::unavailable)) return;
  const std::lock_guard lock{plain_guard_};
  plain_held_.erase(held.owner.sequence);
}

bool redisson::has_plain(const owner_id& owner) const {
  const std::lock_guard lock{plain_guard_};
  return plain_held_.contains(owner.sequence);
}

// The store would take back permits that were never given.
operation<void> redisson::do_release(const grant& held, invocation how) {
  if (is_plain(held.mode) && !has_plain(held.owner)) return refuse_release(held);
  return compat_layout::do_release(held, how);
}

operation<void> redisson::refuse_release(const grant& held) const {
  co_return lock_not_held(held.name, how_.url, held.owner);
}

operation<entered> redisson::do_settle(const request& ask, invocation how) {
  return is_plain(ask.mode) ? settle_plain(ask) : compat_layout::do_settle(ask, how);
}

operation<entered> redisson::settle_plain(const request& ask) const {
  entered out;
  const std::lock_guard lock{plain_guard_};
  const auto known = plain_held_.find(ask.owner.sequence);
  if (known == plain_held_.end()) co_return out;
  out.what = entered::kind::granted;
  out.granted.name = ask.name;
  out.granted.owner = ask.owner;
  out.granted.mode = ask.mode;
  out.granted.weight = known->second;
  out.granted.valid_from = clock_.now() - ask.ttl;  // only good for giving it back
  out.granted.ttl = ask.ttl;
  co_return out;
}

}  // namespace holdfast::engines::redis
