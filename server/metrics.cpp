#include "metrics.hpp"

#include <algorithm>

namespace holdfast::server {

void time_buckets::add(std::chrono::nanoseconds one) noexcept {
  const auto seconds = std::chrono::duration<double>(one).count();
  const auto at = std::ranges::lower_bound(bounds, seconds) - bounds.begin();
  ++counts[static_cast<std::size_t>(at)];
  ++count;
  sum += seconds;
}

double time_buckets::quantile(double q) const noexcept {
  const auto wanted = q * static_cast<double>(count);
  double passed = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    passed += static_cast<double>(counts[i]);
    if (count > 0 && passed >= wanted) return bounds[i];
  }
  return count == 0 ? 0 : bounds.back();
}

std::string_view to_string(outcome what) noexcept {
  switch (what) {
    case outcome::granted:
      return "granted";
    case outcome::busy:
      return "busy";
    case outcome::timed_out:
      return "timed_out";
    case outcome::cancelled:
      return "cancelled";
    case outcome::failed:
      return "failed";
    case outcome::released:
      return "released";
    case outcome::lost:
      return "lost";
    case outcome::broken:
      return "broken";
  }
  return "";
}

std::string_view numbers::prefix_of(std::string_view lock) const {
  const auto slash = lock.find('/');
  const auto prefix =
      slash == std::string_view::npos ? std::string_view{} : lock.substr(0, slash + 1);
  // No name begins with a slash, so that prefix is nobody's.
  return all_.size() < most_prefixes || all_.contains(prefix) ? prefix : "/other";
}

prefix_numbers& numbers::of(std::string_view lock) {
  const auto prefix = prefix_of(lock);
  const auto it = all_.find(prefix);
  return it != all_.end() ? it->second : all_[std::string{prefix}];
}

void numbers::add(std::string_view lock, outcome what) {
  ++of(lock).events[static_cast<std::size_t>(what)];
}
void numbers::add_wait(std::string_view lock, std::chrono::nanoseconds waited) {
  of(lock).waits.add(waited);
}
void numbers::add_hold(std::string_view lock, std::chrono::nanoseconds held) {
  of(lock).holds.add(held);
}
void numbers::add_renewal(std::string_view lock) { ++of(lock).renewed; }

prefix_numbers numbers::total() const {
  prefix_numbers out;
  const auto add_times = [](time_buckets& to, const time_buckets& from) {
    for (std::size_t i = 0; i < to.counts.size(); ++i) to.counts[i] += from.counts[i];
    to.count += from.count;
    to.sum += from.sum;
  };
  for (const auto& [prefix, each] : all_) {
    for (std::size_t i = 0; i < outcomes; ++i) out.events[i] += each.events[i];
    out.renewed += each.renewed;
    add_times(out.waits, each.waits);
    add_times(out.holds, each.holds);
  }
  return out;
}

}  // namespace holdfast::server
