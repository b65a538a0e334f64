#include "engines/consul/connection_pool.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <stop_token>

namespace holdfast::engines::consul {

namespace {

// Rounded up: to wake early would be to spin. An hour is as good as any longer sleep.
int poll_timeout(steady_time until) {
  const auto left = until - std::chrono::steady_clock::now();
  constexpr nanoseconds longest = std::chrono::hours{1};
  return static_cast<int>(
      std::chrono::ceil<std::chrono::milliseconds>(std::clamp<nanoseconds>(left, {}, longest))
          .count());
}

}  // namespace

// ---- the pool

std::optional<agent::connection_pool::shelf::iterator> agent::connection_pool::take() {
  shelf made;
  {
    const std::lock_guard lock{guard_};
    if (is_closing()) return std::nullopt;
    if (!idle_.empty()) {
      busy_.splice(busy_.begin(), idle_, idle_.begin());
      return busy_.begin();
    }
  }
  made.emplace_back(with_);
  const std::lock_guard lock{guard_};
  if (is_closing()) return std::nullopt;
  busy_.splice(busy_.begin(), made);
  return busy_.begin();
}

// The one that was used last is the first to be used again: the others grow old, and go.
void agent::connection_pool::give_back(shelf::iterator which) noexcept {
  shelf unwanted;  // closed without the lock
  const std::lock_guard lock{guard_};
  if (is_closing()) {
    // Under the lock: when close() has seen the last one go, there is no pool any more.
    busy_.erase(which);
    if (busy_.empty()) changed_.notify_all();
    return;
  }
  idle_.splice(idle_.begin(), busy_, which);
  if (idle_.size() > most_idle) unwanted.splice(unwanted.begin(), idle_, std::prev(idle_.end()));
}

void agent::connection_pool::close() noexcept {
  std::unique_lock lock{guard_};
  closing_ = true;
  for (const auto& one : busy_) one.wake();
  changed_.notify_all();
  changed_.wait(lock, [this] { return busy_.empty(); });
  idle_.clear();
}

void agent::connection_pool::visit::pause(nanoseconds length, const call& limits) {
  const auto until = std::min(limits.deadline, std::chrono::steady_clock::now() + length);
  std::unique_lock lock{in_.guard_};
  in_.changed_.wait_until(lock, limits.stop, until, [this] { return in_.is_closing(); });
}

// ---- one connection

agent::connection_pool::connection::connection(const http_setup& with)
    : driver_(curl_multi_init()), transfer_(with) {
  if (!driver_) throw std::bad_alloc{};
  // One to each agent may stay open.
  curl_multi_setopt(driver_.get(), CURLMOPT_MAXCONNECTS,
                    static_cast<long>(with.how().where.size()));
  curl_multi_setopt(driver_.get(), CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
}

result<http_reply> agent::connection_pool::connection::ask(std::size_t member, const question& what,
                                                           const call& until,
                                                           const std::atomic<bool>& closing) {
  if (auto ready = transfer_.prepare(member, what); !ready) return std::move(ready).error();
  if (until.stop.stop_requested()) return transfer_.give_up(cut::stopped);
  if (curl_multi_add_handle(driver_.get(), transfer_.handle()) != CURLM_OK) throw std::bad_alloc{};
  end how;
  {
    const std::stop_callback stopped{until.stop, [this] { wake(); }};
    how = drive(until, closing);
  }
  // One that is not through yet is closed by this, so the server hears of it.
  curl_multi_remove_handle(driver_.get(), transfer_.handle());
  if (how.by_us) return transfer_.give_up(*how.by_us);
  return transfer_.finish(how.by_libcurl);
}

agent::connection_pool::connection::end agent::connection_pool::connection::drive(
    const call& until, const std::atomic<bool>& closing) const {
  for (;;) {
    if (closing.load(std::memory_order_relaxed)) return {cut::closing};
    if (until.stop.stop_requested()) return {cut::stopped};
    if (std::chrono::steady_clock::now() >= until.deadline) return {cut::out_of_time};
    int running = 0;
    if (curl_multi_perform(driver_.get(), &running) != CURLM_OK) return {{}, CURLE_FAILED_INIT};
    if (running == 0) break;
    curl_multi_poll(driver_.get(), nullptr, 0, poll_timeout(until.deadline), nullptr);
  }
  int left = 0;
  const auto* const said = curl_multi_info_read(driver_.get(), &left);
  return {{}, said != nullptr ? said->data.result : CURLE_FAILED_INIT};
}

}  // namespace holdfast::engines::consul
