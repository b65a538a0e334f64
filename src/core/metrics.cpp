#include "core/metrics.hpp"

#include <algorithm>
#include <cmath>

namespace holdfast {

nanoseconds histogram::quantile(double q) const noexcept {
  if (count == 0) return nanoseconds{0};
  const auto wanted =
      static_cast<std::uint64_t>(std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(count)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    seen += buckets[i];
    if (seen >= std::max<std::uint64_t>(wanted, 1)) return nanoseconds{std::int64_t{1} << (i + 1)};
  }
  return nanoseconds{std::int64_t{1} << buckets.size()};
}

namespace core {

histogram live_histogram::snapshot() const noexcept {
  histogram out;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    out.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    out.count += out.buckets[i];
  }
  out.sum = nanoseconds{static_cast<std::int64_t>(sum_.load(std::memory_order_relaxed))};
  return out;
}

}  // namespace core

}  // namespace holdfast
