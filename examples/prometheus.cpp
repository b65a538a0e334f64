// The numbers of a client as Prometheus reads them: text for your /metrics, or for a file that an agent collects.
//
//   prometheus [STORE]
#include <holdfast/holdfast.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <limits>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

using holdfast::metrics;

struct number {
  std::string_view name, help;
  std::uint64_t metrics::*value;
};

const number counters[] = {
    {"acquired", "Leases given out by the store.", &metrics::acquired},
    {"handed_off", "Leases passed on inside this process.", &metrics::handed_off},
    {"reentered", "Re-entries of recursive locks.", &metrics::reentered},
    {"busy", "Attempts that found the lock taken.", &metrics::busy},
    {"timed_out", "Acquires whose wait was over.", &metrics::timed_out},
    {"cancelled", "Acquires that were cancelled.", &metrics::cancelled},
    {"failed", "Acquires that failed otherwise.", &metrics::failed},
    {"released", "Leases given back.", &metrics::released},
    {"lost", "Leases lost: alert on any.", &metrics::lost},
    {"renewed", "Leases in renewal calls that were answered.", &metrics::renewed},
    {"renew_failed", "Renewal calls that were not answered.", &metrics::renew_failed},
    {"settled", "Requests without an answer that were cleared up.", &metrics::settled},
};

struct times {
  std::string_view name, help;
  holdfast::histogram metrics::*value;
};

const times histograms[] = {
    {"wait", "Time until a lease was there.", &metrics::wait},
    {"hold", "Time from acquire to release.", &metrics::hold},
    {"renew", "Time of a renewal call.", &metrics::renew},
};

// Bucket i of ours ends at 2^(i+1) ns. Prometheus gets every second one from 1 us to 69 s, always the same, added up.
void write_histogram(std::ostream& out, const times& what, const holdfast::histogram& from) {
  constexpr std::size_t first = 10, last = 36;
  out << "# HELP holdfast_" << what.name << "_seconds " << what.help << "\n# TYPE holdfast_"
      << what.name << "_seconds histogram\n";
  std::uint64_t up_to_here = 0;
  for (std::size_t i = 0; i < from.buckets.size(); ++i) {
    up_to_here += from.buckets[i];
    const auto end = i + 1;
    if (end < first || end > last || end % 2 != 0) continue;
    const double seconds = static_cast<double>(std::uint64_t{1} << end) * 1e-9;
    out << "holdfast_" << what.name << "_seconds_bucket{le=\"" << seconds << "\"} " << up_to_here
        << '\n';
  }
  out << "holdfast_" << what.name << "_seconds_bucket{le=\"+Inf\"} " << up_to_here << "\nholdfast_"
      << what.name << "_seconds_sum " << std::chrono::duration<double>{from.sum}.count()
      << "\nholdfast_" << what.name << "_seconds_count " << up_to_here << '\n';
}

void write_exposition(std::ostream& out, const metrics& now) {
  out.precision(std::numeric_limits<double>::digits10);
  for (const auto& [name, help, value] : counters)
    out << "# HELP holdfast_" << name << "_total " << help << "\n# TYPE holdfast_" << name
        << "_total counter\nholdfast_" << name << "_total " << now.*value << '\n';
  out << "# HELP holdfast_held Leases held at this moment.\n# TYPE holdfast_held gauge\n"
      << "holdfast_held " << now.held_now << '\n';
  for (const auto& what : histograms) write_histogram(out, what, now.*what.value);
}

int main(int argc, char** argv) try {
  const auto client = holdfast::client::open(argc > 1 ? argv[1] : holdfast::default_store());

  // Some work to count: four threads, a hundred turns each.
  holdfast::mutex stock{client, "examples/stock"};
  std::vector<std::jthread> workers;
  for (int i = 0; i < 4; ++i)
    workers.emplace_back([&stock] {
      for (int turn = 0; turn < 100; ++turn) const std::scoped_lock guard{stock};
    });
  workers.clear();

  write_exposition(std::cout, client.metrics());
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
