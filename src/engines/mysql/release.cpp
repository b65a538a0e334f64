// Giving back and shrinking.
#include "engines/mysql/lock_rows_parts.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include "engines/common/modes.hpp"
#include "engines/common/sentences.hpp"
#include "support/fork.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace holdfast::engines::mysql {

// ---- release

result<void> mysql_engine::release(const grant& held, const call& limits) {
  if (auto ok = end_late_requests(held.name, limits); !ok) return ok;
  if (!is_entry(held)) {
    auto on = plain_.take(limits, held.name);
    if (!on) return std::move(on).error();
    auto freed = (*on)->run(sql().release,
                            {held.name, std::string_view{session_.client()}, held.owner.sequence});
    if (!freed) return std::move(freed).error();
    if (freed->affected > 0) return {};
  }
  // There are waiters, or it is not ours any more.
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
  if (!was_held) return lock_not_held(name, how_.url, owner);
  return {};
}

// Never destroyed: a client may be closed while the program ends. A forked child begins with an empty list: what
// is under way in its parent does not end here, and the guard may be locked for good.
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

std::shared_ptr<releases::pending> releases::begin(const std::string& what,
                                                   std::function<result<void>()> work,
                                                   steady_time deadline) {
  auto fresh = std::make_shared<pending>(pending{std::move(work), deadline});
  const std::lock_guard held{guard_};
  all_[what].push_back(fresh);
  count_.fetch_add(1);
  return fresh;
}

// REQUIRES: `held` is, and no thread has begun it.
void releases::run(lock& held, const std::string& what, const std::shared_ptr<pending>& which) {
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

result<void> releases::serve(const std::string& what, const std::shared_ptr<pending>& which) {
  lock held{guard_};
  if (!which->begun) run(held, what, which);
  ended_.wait(held, [&] { return which->outcome.has_value(); });
  return std::move(*which->outcome);
}

void releases::wait_for(const std::string& what, const call& limits) {
  // Not by a caller that may have to give up before the release does.
  const auto is_for_us = [&](const std::shared_ptr<pending>& which) {
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
      what, [this, &held, &limits] { return release(held, limits); }, limits.deadline);
  release_threads_.post([this, what = std::move(what), which = std::move(which), &done] {
    done.complete(releases_.serve(what, which));
  });
}

// ---- downgrade

result<grant> mysql_engine::downgrade(const grant& held, lock_mode to, const call& limits) {
  result<grant> out = lock_not_held(held.name, how_.url, held.owner);
  const std::string_view me = session_.client();
  const auto seq = held.owner.sequence;
  const auto asked = session_.now();
  auto done = with_lock_rows(held.name, held.owner, 0, limits, [&](lock_rows& at) -> result<void> {
    out = lock_not_held(held.name, how_.url, held.owner);
    if (auto ok = at.expire(); !ok) return ok;
    const auto* mine = at.holder(me, seq);
    if (mine == nullptr) return {};
    if (mine->mode == to) {  // by an attempt whose answer was lost
      out = grant_of(*mine, held.name, at.now(), asked);
      return {};
    }
    if (!shrinks(mine->mode, to)) return cannot_downgrade(held, mine->mode, to, how_.url);
    auto smaller = at.shrink(me, seq, to, weight_of(to));
    if (!smaller) return std::move(smaller).error();
    out = grant_of(**smaller, held.name, at.now(), asked);
    return {};
  });
  if (!done) return std::move(done).error();
  return out;
}

}  // namespace holdfast::engines::mysql
