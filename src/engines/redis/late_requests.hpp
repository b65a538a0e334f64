// Owners of which a request was sent and never answered: it may still be delivered, however late. Whatever ends such an
// owner leaves a mark in the store, which the late request finds.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace holdfast::engines::redis {

class late_requests {
 public:
  // How long the mark stays. Networks give up long before; a proxy that is stopped for longer can still deliver.
  static constexpr std::chrono::milliseconds mark_kept = std::chrono::minutes{10};

  template <class T>
  void note(const owner_id& owner, const result<T>& outcome) {
    if (outcome || outcome.error().is_not_done()) return;
    const std::lock_guard lock{guard_};
    if (owners_.insert(owner.sequence).second) count_.fetch_add(1, std::memory_order_release);
  }
  bool has(const owner_id& owner) const {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock{guard_};
    return owners_.contains(owner.sequence);
  }
  // The mark is there, or nothing of this owner will be asked for any more.
  void forget(const owner_id& owner) {
    if (count_.load(std::memory_order_acquire) == 0) return;
    const std::lock_guard lock{guard_};
    if (owners_.erase(owner.sequence) != 0) count_.fetch_sub(1, std::memory_order_release);
  }

 private:
  mutable std::mutex guard_;
  std::unordered_set<std::uint64_t> owners_;  // sequence numbers
  std::atomic<std::size_t> count_{0};         // to be read without the guard
};

}  // namespace holdfast::engines::redis
