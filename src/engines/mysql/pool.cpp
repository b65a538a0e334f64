#include "engines/mysql/pool.hpp"

#include "engines/mysql/sql.hpp"

#include <fmt/format.h>

#include <thread>

namespace holdfast::engines::mysql {

// ---- ghosts

void ghosts::add(const identity& whose) {
  const std::lock_guard lock{guard_};
  all_.push_back(whose);
}

bool ghosts::any() const {
  const std::lock_guard lock{guard_};
  return !all_.empty();
}

// Only what the server calls by the same number and the same address: after a restart the numbers begin anew.
result<void> ghosts::lay(connection& by, const settings& how, const call& limits) {
  std::vector<identity> some;
  {
    const std::lock_guard lock{guard_};
    some.swap(all_);
  }
  while (!some.empty()) {
    const auto& one = some.back();
    auto alive = by.ask(sql().is_alive, {one.id, one.host});
    if (alive && alive->front().number(0) == 0) {
      some.pop_back();
      continue;
    }
    // What comes of it shows in the next look.
    if (alive) by.end(one.id);
    const bool give_up = !alive || by.is_broken() || limits.stop.stop_requested() ||
                         std::chrono::steady_clock::now() >= limits.deadline;
    if (give_up) {
      const std::lock_guard lock{guard_};
      all_.insert(all_.end(), some.begin(), some.end());
      return error{errc::unavailable,
                   fmt::format("{}: a statement that was given up still runs there.", how.url)};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  return {};
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
      auto one = std::move(idle_.back());
      idle_.pop_back();
      if (!one->is_stale()) {
        one->begin(limits, name);
        return lease{*this, std::move(one)};
      }
      --count_;  // the server has ended it: it was restarted, or somebody was thorough
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
    if (what->is_ghost()) ghosts_.add(what->who());
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
