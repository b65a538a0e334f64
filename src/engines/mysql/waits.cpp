#include "engines/mysql/waits.hpp"

#include <vector>

namespace holdfast::engines::mysql {

namespace {

constexpr auto news_kept = std::chrono::minutes{1};
constexpr std::size_t news_looked_through = 64;

}  // namespace

// Whoever takes it out of all_ wakes it; so it is woken once.
struct waits::waiter {
  std::uint64_t id = 0, number = 0;
  wake done;
  std::optional<timers::id> timer;
  std::optional<std::stop_callback<on_stop>> stop;
};

void waits::begin(std::uint64_t number, call limits, wake done) {
  auto one = std::make_shared<waiter>();
  one->number = number;
  std::optional<told_grant> news;
  {
    const std::lock_guard lock{guard_};
    if (const auto at = early_.find(number); at != early_.end()) {
      news = at->second.what;
      early_.erase(at);
    } else {
      one->id = ++last_id_;
      one->done = std::move(done);
      all_.emplace(one->id, one);
      by_number_[number] = one->id;
    }
  }
  if (news) return done(news);
  // It can be woken from now on, by anybody; `one` keeps it until its timer and callback are known.
  if (limits.stop.stop_possible()) one->stop.emplace(limits.stop, on_stop{this, one->id});
  if (limits.deadline != steady_time::max()) {
    const auto timer = timers_.at(limits.deadline, [this, id = one->id] { end(id, std::nullopt); });
    std::unique_lock lock{guard_};
    if (all_.contains(one->id)) {
      one->timer = timer;
    } else {
      lock.unlock();
      timers_.cancel(timer);
    }
  }
  begun_();
}

bool waits::any() const {
  const std::lock_guard lock{guard_};
  return !all_.empty();
}

void waits::end(std::uint64_t id, std::optional<told_grant> news) {
  std::shared_ptr<waiter> one;
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(id);
    if (at == all_.end()) return;
    one = std::move(at->second);
    all_.erase(at);
    const auto number = by_number_.find(one->number);
    if (number != by_number_.end() && number->second == id) by_number_.erase(number);
  }
  if (one->timer) timers_.cancel(*one->timer);
  one->done(std::move(news));
}

std::uint64_t waits::id_of(std::uint64_t number) const {
  const auto at = by_number_.find(number);
  return at == by_number_.end() ? 0 : at->second;
}

void waits::granted(std::uint64_t number, const told_grant& what) {
  std::uint64_t id = 0;
  {
    const std::lock_guard lock{guard_};
    id = id_of(number);
    if (id == 0) {
      // News for an owner that had its answer by another way stays unread.
      const auto now = std::chrono::steady_clock::now();
      if (early_.size() >= news_looked_through)
        std::erase_if(early_,
                      [now](const auto& one) { return now - one.second.since > news_kept; });
      early_[number] = {what, now};
      return;
    }
  }
  end(id, what);
}

void waits::look_again(std::uint64_t number) {
  std::uint64_t id = 0;
  {
    const std::lock_guard lock{guard_};
    id = id_of(number);
  }
  if (id != 0) end(id, std::nullopt);
}

void waits::look_again_all() {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock{guard_};
    for (const auto& [id, one] : all_) ids.push_back(id);
  }
  for (const auto id : ids) end(id, std::nullopt);
}

void waits::forget(std::uint64_t number) {
  const std::lock_guard lock{guard_};
  if (!early_.empty()) early_.erase(number);
}

}  // namespace holdfast::engines::mysql
