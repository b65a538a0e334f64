// What no client needs any more is taken out of the tables.
#include "engines/mysql/lock_rows_parts.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include <algorithm>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

constexpr auto between_sweeps = std::chrono::minutes{10};
constexpr nanoseconds longest_sweep = 30s;

// Takes away what is over, in portions, while there is time.
class sweeper {
 public:
  sweeper(connection& on, const call& limits) : on_(on), limits_(limits) {}

  bool is_done() const noexcept { return is_done_; }

  // From there to the other end of the table. Rows are read without locks, and deleted by their names, many at once.
  // Returns the name it came to; none when it is through. In `stale`: names whose rows count entries that are gone.
  std::string free_names(std::string last, std::vector<std::string>& stale) {
    while (may_go_on()) {
      auto found = on_.ask(sql().some_rows, {in_us(24h), std::string_view{last}});
      if (!found) {
        is_done_ = false;
        break;
      }
      const bool was_last = found->size() < statements::swept_at_once;
      if (!was_last) last = found->back().bytes(0);
      for (const auto& found_row : *found)
        if (found_row.number(2) != 0 && stale.size() < statements::swept_at_once)
          stale.push_back(found_row.bytes(0));
      std::erase_if(*found, [](const row& found_row) { return found_row.number(1) == 0; });
      erase(*found);
      if (was_last) return {};
    }
    return last;
  }

  void old_entries() {
    for (bool more = true; more && may_go_on();) {
      const auto found = ask(sql().old_entries, {});
      more = found.size() == statements::swept_at_once;
      for (const auto& entry : found)
        if (!on_.run(sql().delete_entry, {entry.number(0), std::string_view{entry.bytes(1)},
                                          std::string_view{entry.bytes(2)}, entry.number(3)}))
          more = is_done_ = false;
    }
  }

  // What `find` finds goes by its key.
  void each(const statement& find, parameters with, const statement& erase) {
    for (bool more = true; more && may_go_on();) {
      const auto found = ask(find, with);
      more = found.size() == statements::swept_at_once;
      for (const auto& old : found)
        if (!on_.run(erase, {std::string_view{old.bytes(0)}})) more = is_done_ = false;
    }
  }

  // The first column of what `find` finds is added to `to`. One portion.
  void collect(const statement& find, parameters with, std::vector<std::string>& to) {
    if (!may_go_on()) return;
    const auto found = ask(find, with);
    for (const auto& old : found) to.push_back(old.bytes(0));
    if (found.size() == statements::swept_at_once) is_done_ = false;
  }

 private:
  void erase(const rows& free) {
    constexpr auto size = statements::sizes.front();
    for (std::size_t begin = 0; begin < free.size(); begin += size) {
      std::vector<parameter> with{in_us(24h)};
      for (std::size_t i = 0; i < size; ++i)  // the last name again, where there are too few
        with.emplace_back(std::string_view{free[std::min(begin + i, free.size() - 1)].bytes(0)});
      if (!on_.run(sql().delete_rows, with)) is_done_ = false;
    }
  }
  rows ask(const statement& what, parameters with) {
    auto found = on_.ask(what, with);
    if (found) return std::move(*found);
    is_done_ = false;
    return {};
  }
  rows ask(const statement& what, std::initializer_list<parameter> with) {
    return ask(what, parameters{with.begin(), with.size()});
  }
  bool may_go_on() {
    if (!on_.is_broken() && std::chrono::steady_clock::now() + 100ms < limits_.deadline)
      return true;
    return is_done_ = false;
  }

  connection& on_;
  const call& limits_;
  bool is_done_ = true;
};

}  // namespace

void mysql_engine::sweep_now_and_then() {
  const auto now = clock_.now().time_since_epoch().count();
  const auto last = swept_at_.load();
  const auto gap = std::chrono::duration_cast<steady_time::duration>(between_sweeps).count();
  if (now - last > gap && swept_at_.exchange(now) == last)
    post([this] {
      call in_background;
      in_background.deadline = std::chrono::steady_clock::now() + longest_sweep;
      sweep(in_background);
    });
}

// One client in ten minutes, the first that comes: rows of names that were free for a day, entries of dead clients on
// names that no client has looked at since, and old sessions; all there are, some hundred at a time. When its time is
// up before that, it rests for twice as long as it has worked, and then the next client goes on where it stopped. A
// token never goes back for it, because the next token is not below the clock.
void mysql_engine::sweep(const call& limits) noexcept {
  const std::string zeros(16, '\0');
  const std::string_view row_of_sweepers = zeros;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> stale, sessions;
  std::string last;
  bool is_done = false;
  {
    auto on = plain_.take(limits, {});
    if (!on) return;
    auto& at = **on;
    static_cast<void>(at.run(sql().insert_sweep, {row_of_sweepers}));
    const auto claimed = at.run(sql().claim_sweep, {row_of_sweepers, in_us(between_sweeps)});
    if (!claimed || claimed->affected == 0) return;
    const auto before = at.ask(sql().swept_so_far, {row_of_sweepers});
    if (before && !before->empty()) last = before->front().bytes(0);
    sweeper with{at, limits};
    with.old_entries();
    const std::array<parameter, 1> a_minute{in_us(60s)};
    const std::array<parameter, 2> a_day{in_us(24h), row_of_sweepers};
    with.collect(sql().old_sessions, a_day, sessions);
    with.collect(sql().stale_names, a_minute, stale);
    with.each(sql().old_counters, {}, sql().delete_old_counter);
    last = with.free_names(std::move(last), stale);
    is_done = with.is_done();
    at.economise();
  }
  for (const auto& client : sessions) forget_session(client, limits);
  for (const auto& name : stale)
    static_cast<void>(with_lock_rows(name, owner_id{client_, 0}, 0, limits,
                                     [](lock_rows& at) { return at.tidy(); }));
  const nanoseconds rest =
      is_done
          ? between_sweeps
          : std::min<nanoseconds>(between_sweeps, 2 * (std::chrono::steady_clock::now() - begin));
  swept_at_ = (clock_.now() - between_sweeps + rest).time_since_epoch().count();
  // On a connection that works: that of the sweep may have ended on the way.
  call a_moment;
  a_moment.deadline = std::chrono::steady_clock::now() + 1s;
  if (auto on = plain_.take(a_moment, {}))
    static_cast<void>((*on)->run(
        sql().end_sweep, {in_us(between_sweeps - rest), std::string_view{last}, row_of_sweepers}));
}

// Only while its client is not there, which is looked at under the lock of the row (lock_rows::check_absent_holders). A
// client that comes back finds no row, or keeps it.
void mysql_engine::forget_session(std::string_view client, const call& limits) noexcept {
  auto on = transactions_.take(limits, {});
  if (!on) return;
  const auto found = (*on)->ask(sql().look_at_session, {client});
  const bool is_absent = found && !found->empty() && found->front().number(1) != 0;
  if (!is_absent || !(*on)->run(sql().delete_session, {client}) || !(*on)->commit())
    (*on)->rollback();
}

}  // namespace holdfast::engines::mysql
