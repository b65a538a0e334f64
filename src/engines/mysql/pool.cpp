#include "engines/mysql/pool.hpp"

#include "engines/mysql/sql.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>

namespace holdfast::engines::mysql {

// ---- late requests

void late_requests::add(const connection& what) {
  if (what.has_timed_out()) last_ = std::chrono::steady_clock::now();
  if (!what.may_still_run()) return;
  const std::lock_guard lock{guard_};
  all_.push_back(what.own_identity());
  count_ = all_.size();
}

// Requests that are about nothing in particular may be about this. And all, before there are too many of them.
std::vector<identity> late_requests::about(std::string_view name) const {
  constexpr std::size_t many = 64;
  std::vector<identity> out;
  const std::lock_guard lock{guard_};
  if (name.empty() || all_.size() >= many) return all_;
  std::ranges::copy_if(all_, std::back_inserter(out), [name](const identity& late) {
    return late.about.empty() || late.about == name;
  });
  return out;
}

bool late_requests::any(std::string_view name) const { return count_ != 0 && !about(name).empty(); }

void late_requests::forget(const identity& which) {
  const std::lock_guard lock{guard_};
  std::erase_if(
      all_, [&](const identity& late) { return late.id == which.id && late.host == which.host; });
  count_ = all_.size();
}

// Only what the server calls by the same number and the same address: after a restart the numbers begin anew. A
// connection that looks asleep may have a statement on its way to it, so all must go. They stay in the list until they
// are gone: another thread that asks meanwhile must not take them for ended.
result<void> late_requests::end_all(std::string_view name, connection& by, const settings& how,
                                    const call& limits) {
  for (;;) {
    const auto some = about(name);
    bool all_gone = true;
    for (const auto& late : some) {
      auto known = by.knows(late);
      if (!known) return std::move(known).error();
      if (!*known) {
        forget(late);
        continue;
      }
      all_gone = false;
      by.end(late.id);  // what comes of it shows in the next look
    }
    if (all_gone) return {};
    if (by.is_broken() || limits.stop.stop_requested() ||
        std::chrono::steady_clock::now() >= limits.deadline)
      return error{errc::unavailable,
                   fmt::format("{}: a statement that was given up still runs there.", how.url)};
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

// ---- pool

result<pool::lease> pool::take(const call& limits, std::string_view name) {
  {
    std::unique_lock lock{guard_};
    const auto can_go_on = [this] { return !idle_.empty() || count_ < how_.connections; };
    if (!can_go_on() && !freed_.wait_until(lock, limits.stop, limits.deadline, can_go_on))
      return error{
          errc::unavailable,
          fmt::format("{}: all {} connections are in use (connections=).", how_.url, count_)};
    while (!idle_.empty()) {
      auto idle = std::move(idle_.back());
      idle_.pop_back();
      if (!idle->is_stale() && idle->heard_at() >= late_requests_.last()) {
        idle->begin(limits, name);
        return lease{*this, std::move(idle)};
      }
      // The server has ended it (it was restarted, or an operator killed it), or it has not been heard of since another
      // connection timed out: that would cost the next caller all its time, too.
      --count_;
    }
    ++count_;
  }
  auto fresh = connection::open(how_, by_, kind_, limits);
  if (fresh) {
    (*fresh)->begin(limits, name);
    return lease{*this, std::move(*fresh)};
  }
  const std::lock_guard lock{guard_};
  --count_;
  freed_.notify_one();
  return std::move(fresh).error();
}

void pool::give_back(std::unique_ptr<connection> what) noexcept {
  if (what->is_broken()) {
    late_requests_.add(*what);
    what.reset();
  }
  const std::lock_guard lock{guard_};
  if (what) {
    what->begin({}, {});
    idle_.push_back(std::move(what));
  } else {
    --count_;
  }
  freed_.notify_one();
}

}  // namespace holdfast::engines::mysql
