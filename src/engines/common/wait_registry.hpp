// Which owners of this client wait for what, and the news that end the waiting.
//
// News may come before the one it is for has begun to wait (its answer "you are queued" was still on the way), so
// grants for owners unknown here are kept for a while: until they are old, or many.
//
// News: what the store tells of a grant. Timers: at(when, work) gives something that cancel() takes.
#pragma once

#include <holdfast/engine.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::engines {

template <class News, class Timers>
class wait_registry {
 public:
  // Called once, without locks: with the grant, or with nothing for "look again" (a hint, the deadline, stop, or the
  // connection was lost).
  using wake = std::function<void(std::optional<News>)>;

  // `begun` is called, without locks, whenever a wait has begun.
  explicit wait_registry(Timers& timers, std::function<void()> begun = {})
      : timers_(timers), begun_(std::move(begun)) {}
  wait_registry(const wait_registry&) = delete;
  wait_registry& operator=(const wait_registry&) = delete;
  ~wait_registry() { look_again_all(); }

  // Waits for the grant of the owner with this sequence number (or what else has a number), or for a change of
  // `topic`. The limits are copied: the caller's may be gone as soon as `done` has been called, which can be before
  // these return. News that `answers` refuses is of an earlier attempt: it is dropped.
  using judge = std::function<bool(const News&)>;
  void for_grant(std::uint64_t number, call limits, wake done, judge answers = {});
  void for_change(std::string topic, call limits, wake done);
  bool any() const {
    const std::lock_guard lock{guard_};
    return !all_.empty();
  }

  void granted(std::uint64_t number, const News& what);
  void look_again(std::uint64_t number);
  void changed(const std::string& topic);
  void look_again_all();
  // Its owner has its answer from elsewhere.
  void forget(std::uint64_t number) {
    const std::lock_guard lock{guard_};
    if (!early_.empty()) early_.erase(number);
  }

 private:
  static constexpr auto news_kept = std::chrono::seconds{30};
  static constexpr std::size_t most_news = 16'384;
  using id = std::uint64_t;  // of a wait; 0: none
  using timer = decltype(std::declval<Timers&>().at(steady_time{}, std::function<void()>{}));

  struct on_stop {
    wait_registry* in;
    id which;
    void operator()() const noexcept { in->end(which, std::nullopt); }
  };
  // The thread that takes it out of all_ wakes it; so it is woken once.
  struct waiter {
    id which = 0;
    std::optional<std::uint64_t> number{};
    std::string topic{};
    wake done{};
    judge answers{};
    std::optional<wait_registry::timer> timer{};
    std::optional<std::stop_callback<on_stop>> stop{};
  };
  struct early {
    News what;
    steady_time since;
  };

  void begin(const std::shared_ptr<waiter>& entry, const call& limits);
  void end(id which, std::optional<News> news);
  void take_out(const waiter& entry);
  void keep(std::uint64_t number, const News& what);
  id find(std::uint64_t number) const {
    const auto at = by_number_.find(number);
    return at == by_number_.end() ? 0 : at->second;
  }

  Timers& timers_;
  const std::function<void()> begun_;
  mutable std::mutex guard_;
  id last_ = 0;
  std::unordered_map<id, std::shared_ptr<waiter>> all_;
  std::unordered_map<std::uint64_t, id> by_number_;
  std::multimap<std::string, id, std::less<>> by_topic_;
  std::unordered_map<std::uint64_t, early> early_;                    // by number
  std::deque<std::pair<steady_time, std::uint64_t>> early_in_order_;  // of arrival
};

template <class News, class Timers>
void wait_registry<News, Timers>::for_grant(std::uint64_t number, call limits, wake done,
                                            judge answers) {
  auto entry = std::make_shared<waiter>();
  entry->number = number;
  entry->done = std::move(done);
  entry->answers = std::move(answers);
  std::optional<News> news;
  {
    const std::lock_guard lock{guard_};
    if (const auto at = early_.find(number); at != early_.end()) {
      if (!entry->answers || entry->answers(at->second.what)) news = std::move(at->second.what);
      early_.erase(at);
    }
    if (!news) {
      entry->which = ++last_;
      all_.emplace(entry->which, entry);
      by_number_[number] = entry->which;
    }
  }
  if (news) return entry->done(std::move(news));
  begin(entry, limits);
}

template <class News, class Timers>
void wait_registry<News, Timers>::for_change(std::string topic, call limits, wake done) {
  auto entry = std::make_shared<waiter>();
  entry->topic = std::move(topic);
  entry->done = std::move(done);
  {
    const std::lock_guard lock{guard_};
    entry->which = ++last_;
    all_.emplace(entry->which, entry);
    by_topic_.emplace(entry->topic, entry->which);
  }
  begin(entry, limits);
}

// The waiter can be woken from now on, by anybody; `one` keeps it until its timer and callback are known.
template <class News, class Timers>
void wait_registry<News, Timers>::begin(const std::shared_ptr<waiter>& entry, const call& limits) {
  if (limits.stop.stop_possible()) entry->stop.emplace(limits.stop, on_stop{this, entry->which});
  if (limits.deadline != steady_time::max()) {
    const auto planned =
        timers_.at(limits.deadline, [this, which = entry->which] { end(which, std::nullopt); });
    std::unique_lock lock{guard_};
    if (all_.contains(entry->which)) {
      entry->timer = planned;
    } else {
      lock.unlock();
      timers_.cancel(planned);
    }
  }
  if (begun_) begun_();
}

template <class News, class Timers>
void wait_registry<News, Timers>::end(id which, std::optional<News> news) {
  std::shared_ptr<waiter> entry;
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(which);
    if (at == all_.end()) return;
    entry = std::move(at->second);
    all_.erase(at);
    take_out(*entry);
  }
  if (entry->timer) timers_.cancel(*entry->timer);
  entry->done(std::move(news));
}

// REQUIRES: guard_ is held.
template <class News, class Timers>
void wait_registry<News, Timers>::take_out(const waiter& entry) {
  if (entry.number) {
    // Its owner may have begun to wait anew meanwhile.
    if (find(*entry.number) == entry.which) by_number_.erase(*entry.number);
    return;
  }
  const auto [first, last] = by_topic_.equal_range(entry.topic);
  for (auto i = first; i != last; ++i) {
    if (i->second != entry.which) continue;
    by_topic_.erase(i);
    return;
  }
}

template <class News, class Timers>
void wait_registry<News, Timers>::granted(std::uint64_t number, const News& what) {
  id which = 0;
  {
    const std::lock_guard lock{guard_};
    which = find(number);
    if (which == 0) return keep(number, what);
    const auto& entry = *all_.at(which);
    if (entry.answers && !entry.answers(what)) return;
  }
  end(which, what);
}

// News for an owner that had its answer by another way stays unread, so the oldest go.
// REQUIRES: guard_ is held.
template <class News, class Timers>
void wait_registry<News, Timers>::keep(std::uint64_t number, const News& what) {
  const auto now = std::chrono::steady_clock::now();
  while (!early_in_order_.empty() &&
         (early_in_order_.size() >= most_news || now - early_in_order_.front().first > news_kept)) {
    const auto [since, oldest] = early_in_order_.front();
    early_in_order_.pop_front();
    const auto at = early_.find(oldest);
    if (at != early_.end() && at->second.since == since) early_.erase(at);
  }
  early_.insert_or_assign(number, early{what, now});
  early_in_order_.emplace_back(now, number);
}

template <class News, class Timers>
void wait_registry<News, Timers>::look_again(std::uint64_t number) {
  id which = 0;
  {
    const std::lock_guard lock{guard_};
    which = find(number);
  }
  if (which != 0) end(which, std::nullopt);
}

template <class News, class Timers>
void wait_registry<News, Timers>::changed(const std::string& topic) {
  std::vector<id> some;
  {
    const std::lock_guard lock{guard_};
    const auto [first, last] = by_topic_.equal_range(topic);
    for (auto i = first; i != last; ++i) some.push_back(i->second);
  }
  for (const auto which : some) end(which, std::nullopt);
}

template <class News, class Timers>
void wait_registry<News, Timers>::look_again_all() {
  std::vector<id> some;
  {
    const std::lock_guard lock{guard_};
    for (const auto& [which, entry] : all_) some.push_back(which);
  }
  for (const auto which : some) end(which, std::nullopt);
}

}  // namespace holdfast::engines
