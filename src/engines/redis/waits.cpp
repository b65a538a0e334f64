#include "engines/redis/waits.hpp"

#include <vector>

namespace holdfast::engines::redis {

namespace {

constexpr auto news_kept = std::chrono::minutes{1};
constexpr std::size_t news_looked_through = 64;

}  // namespace

// Whoever takes it out of all_ wakes it; so it is woken once.
struct waits::waiter {
  std::uint64_t id = 0;
  std::optional<std::uint64_t> sequence;
  std::string topic;
  wake done;
  std::optional<net::reactor::timer_id> timer;
  std::optional<std::stop_callback<on_stop>> stop;
};

waits::~waits() { look_again_all(); }

void waits::for_grant(std::uint64_t sequence, call limits, wake done) {
  auto one = std::make_shared<waiter>();
  one->sequence = sequence;
  one->done = std::move(done);
  std::optional<pushed_grant> news;
  {
    const std::lock_guard lock{guard_};
    if (const auto at = early_.find(sequence); at != early_.end()) {
      news = at->second.what;
      early_.erase(at);
    } else {
      one->id = ++last_id_;
      all_.emplace(one->id, one);
      by_sequence_[sequence] = one->id;
    }
  }
  if (news) return one->done(news);
  begin(one, limits);
}

void waits::for_change(std::string topic, call limits, wake done) {
  auto one = std::make_shared<waiter>();
  one->topic = std::move(topic);
  one->done = std::move(done);
  {
    const std::lock_guard lock{guard_};
    one->id = ++last_id_;
    all_.emplace(one->id, one);
    by_topic_.emplace(one->topic, one->id);
  }
  begin(one, limits);
}

// The waiter can be woken from now on, by anybody; `one` keeps it until its timer and callback are known.
void waits::begin(const std::shared_ptr<waiter>& one, const call& limits) {
  if (limits.stop.stop_possible()) one->stop.emplace(limits.stop, on_stop{this, one->id});
  if (limits.deadline == steady_time::max()) return;
  const auto timer = timers_.at(limits.deadline, [this, id = one->id] { end(id, std::nullopt); });
  {
    const std::lock_guard lock{guard_};
    if (all_.contains(one->id)) {
      one->timer = timer;
      return;
    }
  }
  timers_.cancel(timer);
}

void waits::end(std::uint64_t id, std::optional<pushed_grant> news) {
  std::shared_ptr<waiter> one;
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(id);
    if (at == all_.end()) return;
    one = std::move(at->second);
    all_.erase(at);
    if (one->sequence) {
      by_sequence_.erase(*one->sequence);
    } else {
      const auto [first, last] = by_topic_.equal_range(one->topic);
      for (auto i = first; i != last; ++i) {
        if (i->second != id) continue;
        by_topic_.erase(i);
        break;
      }
    }
  }
  if (one->timer) timers_.cancel(*one->timer);
  one->done(news);
}

void waits::granted(std::uint64_t sequence, const pushed_grant& what) {
  std::uint64_t id = 0;
  {
    const std::lock_guard lock{guard_};
    const auto at = by_sequence_.find(sequence);
    if (at == by_sequence_.end()) {
      drop_old_news();
      early_[sequence] = {what, std::chrono::steady_clock::now()};
      return;
    }
    id = at->second;
  }
  end(id, what);
}

void waits::look_again(std::uint64_t sequence) {
  std::uint64_t id = 0;
  {
    const std::lock_guard lock{guard_};
    const auto at = by_sequence_.find(sequence);
    if (at == by_sequence_.end()) return;
    id = at->second;
  }
  end(id, std::nullopt);
}

void waits::changed(const std::string& topic) {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock{guard_};
    const auto [first, last] = by_topic_.equal_range(topic);
    for (auto i = first; i != last; ++i) ids.push_back(i->second);
  }
  for (const auto id : ids) end(id, std::nullopt);
}

void waits::look_again_all() {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock{guard_};
    for (const auto& [id, one] : all_) ids.push_back(id);
  }
  for (const auto id : ids) end(id, std::nullopt);
}

void waits::forget(std::uint64_t sequence) {
  const std::lock_guard lock{guard_};
  if (!early_.empty()) early_.erase(sequence);
}

// News for an owner that had its answer by another way stays unread. REQUIRES: guard_ is held.
void waits::drop_old_news() {
  if (early_.size() < news_looked_through) return;
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(early_, [now](const auto& one) { return now - one.second.since > news_kept; });
}

}  // namespace holdfast::engines::redis
