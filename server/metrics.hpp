// Numbers of the service, for /metrics and for the dashboard.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace holdfast::server {

// Counts durations; the bounds are those of /metrics.
struct time_buckets {
  static constexpr std::array<double, 12> bounds{0.0001, 0.001, 0.005, 0.02, 0.1, 0.5,
                                                 1,      5,     10,    60,   600, 3600};
  std::array<std::uint64_t, bounds.size() + 1> counts{};
  std::uint64_t count = 0;
  double sum = 0;  // seconds
  void add(std::chrono::nanoseconds one) noexcept;
  // An upper bound of the quantile, from the bounds; in seconds.
  double quantile(double q) const noexcept;
};

enum class outcome : std::uint8_t {
  granted,
  busy,
  timed_out,
  cancelled,
  failed,
  released,
  lost,
  broken
};
inline constexpr std::size_t outcomes = 8;
std::string_view to_string(outcome what) noexcept;

// Of the locks whose names have the same first segment.
struct prefix_numbers {
  std::array<std::uint64_t, outcomes> events{};
  std::uint64_t renewed = 0;
  time_buckets waits, holds;
};

class numbers {
 public:
  void add(std::string_view lock, outcome what);
  void add_wait(std::string_view lock, std::chrono::nanoseconds waited);
  void add_hold(std::string_view lock, std::chrono::nanoseconds held);
  void add_renewal(std::string_view lock);
  // At most so many, and one for all others: a client that makes up names cannot fill the memory of who collects.
  static constexpr std::size_t most_prefixes = 64;
  const std::map<std::string, prefix_numbers, std::less<>>& by_prefix() const { return all_; }
  // Among which of them a lock counts, or would.
  std::string_view prefix_of(std::string_view lock) const;
  prefix_numbers total() const;

 private:
  prefix_numbers& of(std::string_view lock);
  std::map<std::string, prefix_numbers, std::less<>> all_;
};

}  // namespace holdfast::server
