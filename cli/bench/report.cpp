#include "bench/report.hpp"

#include "table.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace holdfast::cli {

namespace {

std::string time_cell(double ns) {
  return brief(std::chrono::nanoseconds{static_cast<std::int64_t>(std::llround(ns))});
}

}  // namespace

void latency_histogram::add(std::chrono::nanoseconds duration, std::uint64_t times) noexcept {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
  // Below 2^precision each value has its own cell; above, the leading bits after the first choose one.
  std::size_t cell = ns;
  if (ns >= (1U << precision)) {
    const auto exponent = static_cast<unsigned>(std::bit_width(ns)) - 1 - precision;
    cell = (static_cast<std::size_t>(exponent) << precision) + (ns >> exponent);
  }
  cells_[std::min(cell, cells - 1)] += times;
  count_ += times;
  sum_ += static_cast<double>(ns) * static_cast<double>(times);
  max_ = std::max(max_, static_cast<double>(ns));
}

void latency_histogram::merge(const latency_histogram& other) noexcept {
  for (std::size_t i = 0; i < cells; ++i) cells_[i] += other.cells_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

double latency_histogram::quantile(double q) const noexcept {
  if (count_ == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < cells; ++i) {
    seen += cells_[i];
    if (seen < std::max<std::uint64_t>(rank, 1)) continue;
    if (i < (2U << precision)) return static_cast<double>(i);
    const auto exponent = static_cast<unsigned>(i >> precision) - 1;
    const auto leading = (i & ((1U << precision) - 1)) + (1U << precision);
    return std::min((static_cast<double>(leading) + 0.5) * std::exp2(exponent), max_);
  }
  return max_;
}

std::string found_free(std::uint64_t handoffs, std::uint64_t takes) {
  if (takes <= handoffs) return "";
  const auto part = static_cast<double>(takes - handoffs) / static_cast<double>(takes);
  return part < 0.01 ? "" : fmt::format("{:.0f}% found it free", 100 * part);
}

fairness fairness_of(const std::vector<std::uint64_t>& served) {
  const auto n = static_cast<double>(served.size());
  double sum = 0;
  double squares = 0;
  for (const auto operations : served) {
    sum += static_cast<double>(operations);
    squares += static_cast<double>(operations) * static_cast<double>(operations);
  }
  if (sum <= 0) return {};
  const auto [least, most] = std::minmax_element(served.begin(), served.end());
  return {sum * sum / (n * squares), static_cast<double>(*least) * n / sum,
          static_cast<double>(*most) * n / sum};
}

double bench_row::per_second() const noexcept {
  const auto seconds = std::chrono::duration<double>(elapsed).count();
  return seconds > 0 ? static_cast<double>(operations) / seconds : 0;
}

std::string bench_report::str() const {
  table out{{{"MEASUREMENT"},
             {"SETUP"},
             {"PER SECOND", align::right},
             {"MEAN", align::right},
             {"P50", align::right},
             {"P99", align::right},
             {"JAIN", align::right},
             {"SHARES", align::right},
             {"", align::left, 100}}};
  for (const auto& row : rows) {
    if (!row.skipped.empty()) {
      out.add({row.what, row.setup, "-", "-", "-", "-", "", "", "skipped: " + row.skipped},
              style::dim);
      continue;
    }
    const bool timed = row.latency.count() > 0;
    out.add(
        {row.what, row.setup, grouped(row.per_second()), timed ? time_cell(row.latency.mean()) : "",
         timed ? time_cell(row.latency.quantile(0.5)) : "",
         timed ? time_cell(row.latency.quantile(0.99)) : "",
         row.fairness ? fmt::format("{:.3f}", row.fairness->jain) : "",
         row.fairness ? fmt::format("{:.2f}-{:.2f}", row.fairness->smallest, row.fairness->largest)
                      : "",
         row.note});
  }
  return fmt::format("{} ({} engine) on {}\n\n{}", printable(store), printable(engine),
                     printable(machine), out.str());
}

}  // namespace holdfast::cli
