// Counters, and being told of changes.
#include "engines/common/counter_rule.hpp"
#include "engines/mysql/errors.hpp"
#include "engines/mysql/lock_rows_parts.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include <algorithm>
#include <array>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds longest_look = 10s, first_poll = 5ms, longest_poll = 250ms;
constexpr std::uint64_t observer_kept = 60'000'000;  // microseconds after its last look
constexpr std::uint64_t first_observer = std::uint64_t{1} << 63U;  // apart from owners' numbers

bool is_forgotten(const row& from) {
  const auto keep = from.number(3);
  return keep > 0 && from.number(4) >= from.number(2) && from.number(4) - from.number(2) >= keep;
}

}  // namespace

// ---- counters

result<counter> mysql_engine::count(const counter_request& ask, const call& limits) {
  if (ask.op == counter_op::read) {
    auto on = plain_.take(limits, ask.name);
    if (!on) return std::move(on).error();
    auto found = (*on)->ask(sql().read_counter, {ask.name});
    if (!found) return std::move(found).error();
    counter out;
    out.applied = true;
    if (found->empty() || is_forgotten(found->front())) return out;
    out.exists = true;
    out.value = found->front().integer(0);
    out.version = found->front().number(1);
    return out;
  }
  auto on = transactions_.take(limits, ask.name);
  if (!on) return std::move(on).error();
  auto out = change_counter(**on, ask);
  if (!out && is_duplicate((*on)->last_error())) {  // another client made it at the same time
    (*on)->rollback();
    out = change_counter(**on, ask);
  }
  if (!out) {
    (*on)->rollback();
    return out;
  }
  if (auto ok = (*on)->commit(); !ok) return std::move(ok).error();
  if (out->applied) wake_observers_of_counter(**on, ask.name);
  return out;
}

result<counter> mysql_engine::change_counter(connection& on, const counter_request& ask) {
  using kind = counter_change::kind;
  auto found = on.ask(sql().lock_counter, {ask.name});
  if (!found) return std::move(found).error();
  const bool is_row = !found->empty();
  const bool exists = is_row && !is_forgotten(found->front());
  const auto change =
      change_of(ask, exists ? std::optional{found->front().integer(0)} : std::nullopt);
  auto keep = exists ? found->front().number(3) : std::uint64_t{0};
  if (ask.keep > nanoseconds::zero()) keep = in_us(ask.keep);
  result<done> written = done{};
  if (change.what == kind::erase) {
    written = on.run(sql().delete_counter, {ask.name});
  } else if (change.what == kind::write) {
    written = is_row ? on.run(sql().update_counter, {change.value, keep, ask.name})
                     : on.run(sql().insert_counter, {ask.name, change.value, keep});
  }
  if (!written) return std::move(written).error();
  counter out;
  out.applied = change.applied;
  out.exists = change.what == kind::write || (exists && change.what == kind::none);
  if (!out.exists) return out;
  if (change.what == kind::write) {
    found = on.ask(sql().read_counter, {ask.name});
    if (!found) return std::move(found).error();
  }
  out.value = found->front().integer(0);
  out.version = found->front().number(1);
  return out;
}

// After the commit: an observer that registers later than we look sees the new value, an earlier one is found here.
void mysql_engine::wake_observers_of_counter(connection& on, std::string_view name) {
  const auto found = on.ask(sql().observers, {std::uint64_t{1}, name});
  if (found)
    for (const auto& observer : *found)
      static_cast<void>(on.run(
          sql().delete_entry,
          {std::uint64_t{1}, name, std::string_view{observer.bytes(0)}, observer.number(1)}));
  if (!on.commit() || !found) return;
  for (const auto& observer : *found)
    if (observer.number(2) != 0) on.interrupt(observer.number(2));
}

// ---- watching

// Registers as an observer, and then looks: what changes in between finds us registered.
result<engines::watch_loop::sight> mysql_engine::look_at(watch_kind kind, std::string_view name,
                                                         std::uint64_t seen, std::uint64_t number,
                                                         const call& limits) {
  auto found = kind == watch_kind::lock && listener_ ? look_at_lock_rows(name, seen, number, limits)
                                                     : look_at_row(kind, name, number, limits);
  if (!found) return std::move(found).error();
  engines::watch_loop::sight out;
  out.changed = found->version != seen;
  out.again = clock_.now() + std::clamp<nanoseconds>(found->until + 1ms, 2ms, longest_look);
  return out;
}

result<mysql_engine::sighting> mysql_engine::look_at_lock_rows(std::string_view name,
                                                               std::uint64_t seen,
                                                               std::uint64_t number,
                                                               const call& limits) {
  sighting out;
  auto done = with_lock_rows(
      name, owner_id{client_, number}, rw_capacity, limits, [&](lock_rows& at) -> result<void> {
        if (auto ok = at.bring_up_to_date(); !ok) return ok;
        out = {at.version(), longest_look};
        if (out.version != seen) return {};
        if (const auto over = at.first_expiry(); over != 0)
          out.until = std::chrono::microseconds{static_cast<std::int64_t>(over - at.now())};
        return at.observe(session_.client(), number, observer_kept);
      });
  if (!done) return std::move(done).error();
  return out;
}

// A counter; or a lock where waiters poll, so that it is asked about without a transaction.
result<mysql_engine::sighting> mysql_engine::look_at_row(watch_kind kind, std::string_view name,
                                                         std::uint64_t number, const call& limits) {
  auto on = plain_.take(limits, name);
  if (!on) return std::move(on).error();
  if (listener_) {
    const std::string_view me = session_.client();
    auto ok = (*on)->run(sql().insert_observer,
                         {std::uint64_t{1}, name, me, number, number, observer_kept});
    if (!ok) return std::move(ok).error();
  }
  const bool is_lock = kind == watch_kind::lock;
  auto found = (*on)->ask(is_lock ? sql().version : sql().read_counter, {name});
  if (!found) return std::move(found).error();
  sighting out{0, longest_look};
  if (found->empty()) return out;
  const auto& from = found->front();
  if (is_lock) {
    if (from.number(2) > from.number(1)) out.version = from.number(0);
  } else if (!is_forgotten(from)) {
    out.version = from.number(1);
    if (from.number(3) > 0)
      out.until = std::chrono::microseconds{
          static_cast<std::int64_t>(from.number(2) + from.number(3) - from.number(4))};
  }
  return out;
}

void mysql_engine::stop_observing(watch_kind kind, std::string_view name,
                                  std::uint64_t number) noexcept {
  if (!listener_) return;
  listener_->unobserve(number);
  post([this, kind, name = std::string{name}, number] {
    call limits;
    limits.deadline = std::chrono::steady_clock::now() + 5s;
    const std::string_view me = session_.client();
    const std::array<parameter, 3> which{std::string_view{name}, me, number};
    bool is_there = false;
    if (auto on = plain_.take(limits, name); on && kind == watch_kind::lock) {
      const auto found = (*on)->ask(sql().is_observing, which);
      is_there = found && !found->empty();
    } else if (on) {
      static_cast<void>((*on)->run(sql().delete_observer, which));
    }
    // Mostly it is gone with the change that it was told of. Else the row of the lock counts it.
    if (is_there)
      static_cast<void>(
          with_lock_rows(name, owner_id{client_, number}, 0, limits,
                         [&](lock_rows& at) { return at.stop_observing(me, number); }));
  });
}

// Told by its listener, if it has any; else it asks, ever less often. Looks on a worker, because that blocks.
class mysql_engine::watching final : public engines::watch_loop {
 public:
  watching(mysql_engine& in, watch_kind kind, std::string_view name, std::uint64_t seen,
           const call& limits, completion<void>& done)
      : engines::watch_loop(in.clock_, limits, done),
        in_(in),
        kind_(kind),
        name_(name),
        seen_(seen),
        number_(first_observer + in.last_observer_.fetch_add(1)) {}
  ~watching() override { in_.stop_observing(kind_, name_, number_); }

 private:
  bool is_ending() const override { return in_.ending_; }
  void go_on() override {
    in_.post([this] { look_again(); });
  }
  void listen(const call& until) override {
    if (in_.listener_) {
      static_cast<void>(in_.listener_->ensure(until));
      in_.listener_->observe(number_);
    }
    in_.waits_.for_grant(number_, until, [this](const std::optional<told_grant>&) { heard(); });
  }
  void look(const call& until) override {
    auto found = in_.look_at(kind_, name_, seen_, number_, until);
    if (!in_.listener_) {
      poll_ = std::clamp<nanoseconds>(poll_ * 3 / 2, first_poll, longest_poll);
      if (found) found->again = std::min(found->again, clock_.now() + poll_);
    }
    saw(found);
  }
  void wake() override { in_.waits_.look_again(number_); }
  void wake_at(steady_time when) override {
    in_.timers_.at(when, [in = &in_, number = number_] { in->waits_.look_again(number); });
  }

  mysql_engine& in_;
  const watch_kind kind_;
  const std::string_view name_;
  const std::uint64_t seen_;
  const std::uint64_t number_;
  nanoseconds poll_{first_poll};
};

void mysql_engine::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                               const call& limits, completion<void>& done) noexcept {
  auto* fresh = new watching{*this, kind, name, seen, limits, done};
  post([fresh] { fresh->begin(); });
}

}  // namespace holdfast::engines::mysql
