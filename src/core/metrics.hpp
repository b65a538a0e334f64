// Counters and histograms behind client::metrics().
#pragma once

#include <holdfast/observer.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace holdfast::core {

class live_histogram {
 public:
  void add(nanoseconds value) noexcept {
    const auto ns = static_cast<std::uint64_t>(value.count() > 0 ? value.count() : 1);
    const auto bucket = std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(ns)) - 1,
                                              buckets_.size() - 1);
    buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(ns, std::memory_order_relaxed);
  }
  histogram snapshot() const noexcept;

 private:
  std::array<std::atomic<std::uint64_t>, 48> buckets_{};
  std::atomic<std::uint64_t> sum_{0};
};

// What is not counted per hold (see owner_counter): nothing here is touched by an uncontended pair.
struct metric_set {
  std::atomic<std::uint64_t> handed_off{0}, reentered{0}, busy{0}, timed_out{0}, cancelled{0},
      failed{0}, lost{0}, renewed{0}, renew_failed{0}, settled{0};
  live_histogram wait, hold, renew;
};

// One uncontended acquire in this many is timed: reading the clock costs as much as half the pair.
inline constexpr std::uint64_t timed_one_in = 16;

}  // namespace holdfast::core
