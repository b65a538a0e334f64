// Owners of which a request was sent and never answered: it may still be delivered, however late. Whatever ends such an
// owner leaves a mark in the store, which the late request finds.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace holdfast::engines::redis {

class late_requests {
 public:
  // How long the mark stays. Networks give up long before; a proxy that is stopped for longer can still deliver.
  static constexpr std::chrono::milliseconds mark_kept = std::chrono::minutes{10};

  template <class T>
  void note(const owner_id& owner, const result<T>& outcome,
            steady_time now = std::chrono::steady_clock::now()) {
    if (outcome || outcome.error().is_not_done()) return;
    const std::lock_guard lock{guard_};
    sweep(now);
    owners_.insert_or_assign(owner.sequence, now);
    count_.store(owners_.size(), std::memory_order_release);
  }
  bool has(const owner_id& owner) const {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock{guard_};
    return owners_.contains(owner.sequence);
  }
  std::size_t size() const noexcept { return count_.load(std::memory_order_acquire); }
  // The mark is there, or nothing of this owner will be asked for any more.
  void forget(const owner_id& owner) {
    if (count_.load(std::memory_order_acquire) == 0) return;
    const std::lock_guard lock{guard_};
    owners_.erase(owner.sequence);
    count_.store(owners_.size(), std::memory_order_release);
  }

 private:
  // Some end elsewhere: at another node, to which their slot has moved. What was sent so long ago is not delivered.
  void sweep(steady_time now) {
    if (now - swept_at_ < mark_kept) return;  // walking them costs something
    swept_at_ = now;
    std::erase_if(owners_, [&](const auto& one) { return now - one.second > 2 * mark_kept; });
  }

  mutable std::mutex guard_;
  std::unordered_map<std::uint64_t, steady_time> owners_;  // by sequence number: the last time
  steady_time swept_at_{};
  std::atomic<std::size_t> count_{0};  // to be read without the guard
};

}  // namespace holdfast::engines::redis
