// Whatever this client asks about a name after it gave a lock of that name back finds it given back. Requests travel on
// connections of their own, and may overtake each other: so a verb waits until the releases before it have been
// answered; or until its own time is up, or it is told to stop.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/consul/agent.hpp"

#include <algorithm>
#include <condition_variable>
#include <coroutine>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::engines::consul {

class release_order {
 public:
  // A release that is under way, from its beginning to its answer.
  class under_way {
   public:
    under_way(release_order& in, std::string_view name) : in_(in), name_(name) { in_.begin(name_); }
    under_way(const under_way&) = delete;
    under_way& operator=(const under_way&) = delete;
    ~under_way() { in_.end(name_); }

   private:
    release_order& in_;
    const std::string name_;
  };

  // Of those that would do the same, one does it. The others, for whom this is false, wait as for a release.
  class only_one {
   public:
    only_one(release_order& in, std::string_view name)
        : in_(in), name_(name), is_it_(in_.begin_alone(name_)) {}
    only_one(const only_one&) = delete;
    only_one& operator=(const only_one&) = delete;
    ~only_one() {
      if (is_it_) in_.end(name_);
    }
    explicit operator bool() const noexcept { return is_it_; }

   private:
    release_order& in_;
    const std::string name_;
    const bool is_it_;
  };

  // co_await: until no release of that name is under way.
  class waiting {
   public:
    waiting(release_order& in, agent& timers, std::string_view name, const invocation& how)
        : in_(in), timers_(timers), name_(name), how_(how) {}
    bool await_ready() {
      if (how_.blocks) in_.wait(name_, how_.limits);
      return how_.blocks || in_.is_free(name_);
    }
    bool await_suspend(std::coroutine_handle<> caller) {
      auto& in = in_;
      auto& timers = timers_;
      const std::string name{name_};
      const auto [deadline, stop] = how_.limits;
      const auto number = in.enlist(name, caller);
      if (!number) return false;
      // It may have gone on, on another thread, and this be gone: only what was copied before is used.
      const auto give_up = [&in, name, which = *number] { in.give_up(name, which); };
      in.keep(*number, stop, [give_up, &timers] { timers.run_soon(give_up); });
      if (deadline != steady_time::max()) timers.at(deadline, give_up);
      return true;
    }
    void await_resume() const noexcept {}

   private:
    release_order& in_;
    agent& timers_;
    const std::string_view name_;
    const invocation& how_;
  };
  waiting after_releases(agent& timers, std::string_view name, const invocation& how) {
    return {*this, timers, name, how};
  }

  void wait_for_all(steady_time deadline) {
    std::unique_lock lock{guard_};
    done_.wait_until(lock, deadline, [this] { return all_.empty(); });
  }

 private:
  using on_stop = std::stop_callback<std::function<void()>>;
  struct waiter {
    std::uint64_t number = 0;
    std::coroutine_handle<> caller{};
  };
  struct releases {
    int count = 0;
    std::vector<waiter> behind{};
  };
  void begin(const std::string& name) {
    const std::lock_guard lock{guard_};
    ++all_[name].count;
  }
  bool begin_alone(const std::string& name) {
    const std::lock_guard lock{guard_};
    return all_.try_emplace(name, releases{1}).second;
  }
  void end(const std::string& name) {
    std::vector<waiter> behind;
    {
      const std::lock_guard lock{guard_};
      const auto at = all_.find(name);
      if (--at->second.count > 0) return;
      behind = std::move(at->second.behind);
      all_.erase(at);
      done_.notify_all();
    }
    for (const auto& next : behind) go_on(next);
  }
  bool is_free(std::string_view name) {
    const std::lock_guard lock{guard_};
    return !all_.contains(name);
  }
  void wait(std::string_view name, const call& limits) {
    std::unique_lock lock{guard_};
    const auto is_over = [&] { return !all_.contains(name); };
    if (limits.deadline == steady_time::max()) {
      done_.wait(lock, limits.stop, is_over);
    } else {
      done_.wait_until(lock, limits.stop, limits.deadline, is_over);
    }
  }
  std::optional<std::uint64_t> enlist(std::string_view name, std::coroutine_handle<> caller) {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(name);
    if (at == all_.end()) return std::nullopt;
    at->second.behind.push_back({++last_number_, caller});
    return last_number_;
  }
  // While it waits.
  void keep(std::uint64_t number, const std::stop_token& stop, std::function<void()> told) {
    if (!stop.stop_possible()) return;
    auto callback = std::make_unique<on_stop>(stop, std::move(told));
    const std::lock_guard lock{guard_};
    const bool still_waits = std::ranges::any_of(all_, [&](const auto& one) {
      return std::ranges::find(one.second.behind, number, &waiter::number) !=
             one.second.behind.end();
    });
    if (still_waits) stops_.emplace(number, std::move(callback));
  }
  // It does not wait any longer, whatever becomes of the releases.
  void give_up(const std::string& name, std::uint64_t number) {
    waiter found;
    {
      const std::lock_guard lock{guard_};
      const auto at = all_.find(name);
      if (at == all_.end()) return;
      auto& behind = at->second.behind;
      const auto entry = std::ranges::find(behind, number, &waiter::number);
      if (entry == behind.end()) return;
      found = *entry;
      behind.erase(entry);
    }
    go_on(found);
  }
  void go_on(const waiter& next) {
    std::unique_ptr<on_stop> unwanted;  // destroyed without the lock: it waits for its callback
    {
      const std::lock_guard lock{guard_};
      if (auto kept = stops_.extract(next.number); !kept.empty())
        unwanted = std::move(kept.mapped());
    }
    unwanted.reset();
    next.caller.resume();
  }

  std::mutex guard_;
  std::condition_variable_any done_;
  std::map<std::string, releases, std::less<>> all_;
  std::map<std::uint64_t, std::unique_ptr<on_stop>> stops_;
  std::uint64_t last_number_ = 0;
};

}  // namespace holdfast::engines::consul
