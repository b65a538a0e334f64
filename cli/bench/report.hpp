// What a benchmark found, as data.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::cli {

// Durations in ns, exact to about 3 %: each power of two is cut into 32. Plain data, so that processes can fill
// one in shared memory.
class latency_histogram {
 public:
  void add(std::chrono::nanoseconds duration, std::uint64_t times = 1) noexcept;
  void merge(const latency_histogram& other) noexcept;
  std::uint64_t count() const noexcept { return count_; }
  double mean() const noexcept { return count_ == 0 ? 0.0 : sum_ / static_cast<double>(count_); }
  double quantile(double q) const noexcept;
  double max() const noexcept { return max_; }

 private:
  static constexpr unsigned precision = 5;
  static constexpr std::size_t cells = (64 - precision) << precision;
  std::array<std::uint64_t, cells> cells_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
};

// How evenly contenders were served.
struct fairness {
  double jain = 0;      // 1: all the same; 1/n: one got everything
  double smallest = 0;  // the least served, as a part of its fair share
  double largest = 0;
};

// "97% found it free": takes that were no hand-off, because contenders did not meet. "" when there were none.
std::string found_free(std::uint64_t handoffs, std::uint64_t takes);

fairness fairness_of(const std::vector<std::uint64_t>& served);

struct bench_row {
  std::string what;
  std::string setup;
  std::uint64_t operations = 0;
  std::chrono::nanoseconds elapsed{};
  latency_histogram latency;
  std::optional<cli::fairness> fairness;
  std::string note;
  std::string skipped;  // why nothing was measured

  double per_second() const noexcept;
};

struct bench_report {
  std::string store;
  std::string engine;
  std::string machine;
  std::vector<bench_row> rows;

  std::string str() const;  // a table
};

}  // namespace holdfast::cli
