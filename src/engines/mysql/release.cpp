// Giving back, shrinking and renewing.
#include "engines/mysql/lock_rows_parts.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include "engines/common/modes.hpp"
#include "support/fork.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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
      for (const auto& one : *found)
        if (one.number(2) != 0 && stale.size() < statements::swept_at_once)
          stale.push_back(one.bytes(0));
      std::erase_if(*found, [](const row& one) { return one.number(1) == 0; });
      erase(*found);
      if (was_last) return {};
    }
    return last;
  }

  void old_mail() {
    for (bool more = true; more && may_go_on();) {
      const auto found = ask(sql().old_mail, {});
      more = found.size() == statements::swept_at_once;
      for (const auto& one : found)
        if (!on_.run(sql().delete_entry, {one.number(0), std::string_view{one.bytes(1)},
                                          std::string_view{one.bytes(2)}, one.number(3)}))
          more = is_done_ = false;
    }
  }

  // What `find` finds goes by its key.
  void each(const statement& find, parameters with, const statement& erase) {
    for (bool more = true; more && may_go_on();) {
      const auto found = ask(find, with);
      more = found.size() == statements::swept_at_once;
      for (const auto& one : found)
        if (!on_.run(erase, {std::string_view{one.bytes(0)}})) more = is_done_ = false;
    }
  }

  // The first column of what `find` finds is added to `to`. One portion.
  void collect(const statement& find, parameters with, std::vector<std::string>& to) {
    if (!may_go_on()) return;
    const auto found = ask(find, with);
    for (const auto& one : found) to.push_back(one.bytes(0));
    if (found.size() == statements::swept_at_once) is_done_ = false;
  }

 private:
  void erase(const rows& free) {
    constexpr auto size = statements::sizes.front();
    for (std::size_t begin = 0; begin < free.size(); begin += size) {
      std::vector<parameter> with{in_us(24h)};
      for (std::size_t i = 0; i < size; ++i)  // the last one again, where there are too few
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

error mysql_engine::not_held(std::string_view name, const owner_id& owner) const {
  return {errc::not_held,
          fmt::format("The lock {} on {} is not held by {} (any more); nothing was changed.",
                      support::quoted(name), how_.url, to_string(owner))};
}

// ---- release

result<void> mysql_engine::release(const grant& held, const call& limits) {
  return release_now(held, limits);
}

result<void> mysql_engine::release_now(const grant& held, const call& limits) {
  if (auto ok = end_late_requests(held.name, limits); !ok) return ok;
  auto done = give_back(held, limits);
  if (done || done.error().code() == errc::not_held) session_.forget(held.owner);
  return done;
}

result<void> mysql_engine::give_back(const grant& held, const call& limits) {
  if (!grant_handle::of(held).is_entry) {
    auto on = plain_.take(limits, held.name);
    if (!on) return std::move(on).error();
    auto freed = (*on)->run(sql().release,
                            {held.name, std::string_view{session_.client()}, held.owner.sequence});
    if (!freed) return std::move(freed).error();
    if (freed->affected > 0) return {};
  }
  // Somebody waits, or it is not ours any more.
  auto handed = hand_over(held, limits);
  if (!handed) return std::move(handed).error();
  if (*handed) return {};
  return release_slowly(held.name, held.owner, limits);
}

result<void> mysql_engine::release_slowly(std::string_view name, const owner_id& owner,
                                          const call& limits) {
  bool was_held = false;
  auto done = with_lock_rows(name, owner, 0, limits, [&](lock_rows& at) -> result<void> {
    if (auto ok = at.expire(); !ok) return ok;
    was_held = at.holder(session_.client(), owner.sequence) != nullptr;
    if (!was_held) return {};
    expects_next_ = !at.waiters().empty();
    auto gone = at.remove(session_.client(), owner.sequence);
    if (!gone) return std::move(gone).error();
    return {};
  });
  if (!done) return std::move(done).error();
  if (!was_held) return not_held(name, owner);
  return {};
}

// Never destroyed: a client may be closed while the program ends. A forked child begins with an empty one: what is
// under way in its parent does not end here, and the guard may be locked for good.
releases& releases::under_way() {
  struct of_process {
    std::uint64_t born = support::fork_generation();
    releases all;
  };
  static std::atomic<of_process*> current{nullptr};
  auto* known = current.load();
  while (known == nullptr || known->born != support::fork_generation()) {
    auto fresh = std::make_unique<of_process>();
    if (current.compare_exchange_strong(known, fresh.get())) known = fresh.release();
  }
  return known->all;
}

std::shared_ptr<releases::one> releases::begin(const std::string& what,
                                               std::function<result<void>()> work,
                                               steady_time deadline) {
  auto fresh = std::make_shared<one>(one{std::move(work), deadline});
  const std::lock_guard held{guard_};
  all_[what].push_back(fresh);
  count_.fetch_add(1);
  return fresh;
}

// REQUIRES: `held` is, and nobody has begun it.
void releases::run(lock& held, const std::string& what, const std::shared_ptr<one>& which) {
  which->begun = true;
  held.unlock();
  auto outcome = which->work();
  held.lock();
  which->outcome = std::move(outcome);
  const auto at = all_.find(what);
  std::erase(at->second, which);
  if (at->second.empty()) all_.erase(at);
  count_.fetch_sub(1);
  ended_.notify_all();
}

result<void> releases::serve(const std::string& what, const std::shared_ptr<one>& which) {
  lock held{guard_};
  if (!which->begun) run(held, what, which);
  ended_.wait(held, [&] { return which->outcome.has_value(); });
  return std::move(*which->outcome);
}

void releases::wait_for(const std::string& what, const call& limits) {
  // Not for those who may have to give up before the release does.
  const auto is_for_us = [&](const std::shared_ptr<one>& which) {
    return !which->begun && which->deadline <= limits.deadline && !limits.stop.stop_possible();
  };
  lock held{guard_};
  for (;;) {
    const auto at = all_.find(what);
    if (at == all_.end()) return;
    const auto next = std::ranges::find_if(at->second, is_for_us);
    if (next == at->second.end()) break;
    run(held, what, std::shared_ptr{*next});
  }
  ended_.wait_until(held, limits.stop, limits.deadline, [&] { return !all_.contains(what); });
}

void mysql_engine::start_release(const grant& held, const call& limits,
                                 completion<void>& done) noexcept {
  auto what = place_ + std::string{held.name};
  auto which = releases_.begin(
      what, [this, &held, &limits] { return release_now(held, limits); }, limits.deadline);
  release_threads_.post([this, what = std::move(what), which = std::move(which), &done] {
    done.complete(releases_.serve(what, which));
  });
}

// ---- downgrade

result<grant> mysql_engine::downgrade(const grant& held, lock_mode to, const call& limits) {
  result<grant> out = not_held(held.name, held.owner);
  const std::string_view me = session_.client();
  const auto seq = held.owner.sequence;
  const auto asked = session_.now();
  auto done = with_lock_rows(held.name, held.owner, 0, limits, [&](lock_rows& at) -> result<void> {
    out = not_held(held.name, held.owner);
    if (auto ok = at.expire(); !ok) return ok;
    const auto* mine = at.holder(me, seq);
    if (mine == nullptr) return {};
    if (mine->mode == to) {  // by an attempt whose answer was lost
      out = grant_of(*mine, held.name, at.now(), asked);
      return {};
    }
    if (weight_of(to) > mine->weight)
      return not_done{
          errc::misconfigured,
          fmt::format("The lock {} on {} is held as {}; it cannot be downgraded to {}.",
                      support::quoted(held.name), how_.url, to_string(mine->mode), to_string(to))};
    auto smaller = at.shrink(me, seq, to, weight_of(to));
    if (!smaller) return std::move(smaller).error();
    out = grant_of(**smaller, held.name, at.now(), asked);
    return {};
  });
  if (!done) return std::move(done).error();
  return out;
}

// ---- renewal

result<void> mysql_engine::renew(std::span<renewal> batch, const call& limits) {
  return keep_up(batch, session::depth::proof, limits);
}

result<void> mysql_engine::keep_up(std::span<renewal> batch, session::depth how,
                                   const call& limits) {
  bool has_mail = false;
  auto done = session_.renew(batch, how, limits, has_mail);
  if (has_mail && !reads_mail_.exchange(true))
    post([this] {
      read_mail();
      reads_mail_ = false;
    });
  const auto now = clock_.now().time_since_epoch().count();
  const auto last = swept_at_.load();
  const auto gap = std::chrono::duration_cast<steady_time::duration>(between_sweeps).count();
  if (now - last > gap && swept_at_.exchange(now) == last)
    post([this] {
      call while_nobody_waits;
      while_nobody_waits.deadline = std::chrono::steady_clock::now() + longest_sweep;
      sweep(while_nobody_waits);
    });
  return done;
}

void mysql_engine::start_renew(std::span<renewal> batch, const call& limits,
                               completion<void>& done) noexcept {
  renewal_thread_.post([this, batch, &limits, &done] {
    done.complete(keep_up(batch, session::depth::upkeep, limits));
  });
}

// Where the listener does not, because nobody waits: what was revoked.
void mysql_engine::read_mail() noexcept {
  call limits;
  limits.deadline = std::chrono::steady_clock::now() + 5s;
  auto on = plain_.take(limits, {});
  if (!on) return;
  const std::string_view me = session_.client();
  const auto mine = session_lock(me);
  const auto found = (*on)->ask(sql().news, {std::string_view{mine}, me});
  if (!found) return;
  std::vector<owner_id> lost;
  for (const auto& one : *found) {
    if (static_cast<entry_state>(one.number(3)) != entry_state::lost) continue;
    const std::string_view name = one.bytes(1);
    // First: a renewal that finds no mail any more must not answer for it from what is known.
    session_.forget({client_, one.number(2)});
    const auto gone = (*on)->run(sql().delete_mail, {name, me, one.number(2)});
    // Also when the answer to the deletion was lost: the news would be gone with it.
    if (!gone || gone->affected > 0) lost.push_back({client_, one.number(2)});
  }
  if (!lost.empty()) core_.on_lost(lost, "it was revoked");
}

// ---- sweeping

// One client in ten minutes, whoever comes first: rows of names that were free for a day, entries of dead clients on
// names that nobody has looked at since, and old sessions; all there are, some hundred at a time. When its time is up
// before that, it rests for twice as long as it has worked, and then whoever comes next goes on where it stopped. A
// token never goes back for it, because the next one is not below the clock.
void mysql_engine::sweep(const call& limits) noexcept {
  const std::string nobody(16, '\0');
  const std::string_view row_of_sweepers = nobody;
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
    with.old_mail();
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
  // On a connection that works: the one that swept may have ended on the way.
  call a_moment;
  a_moment.deadline = std::chrono::steady_clock::now() + 1s;
  if (auto on = plain_.take(a_moment, {}))
    static_cast<void>((*on)->run(
        sql().end_sweep, {in_us(between_sweeps - rest), std::string_view{last}, row_of_sweepers}));
}

// Only while its client is not there, which is looked at under the lock of the row: see lock_rows::look_for_the_dead. A
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
