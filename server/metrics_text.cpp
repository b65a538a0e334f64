// The numbers are counted by the loop alone (metrics.hpp), which the registry of prometheus-cpp would lock for each;
// what is taken from it is its model of a page, and the writing of it.
#include "metrics_text.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>
#include <vector>

namespace holdfast::server {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

ClientMetric labelled(std::string_view prefix) {
  ClientMetric out;
  out.label.push_back({"prefix", std::string{prefix}});
  return out;
}

class page_writer {
 public:
  void single(std::string name, MetricType type, std::string help, std::uint64_t value) {
    ClientMetric one;
    set(one, type, value);
    families_.push_back({std::move(name), std::move(help), type, {std::move(one)}});
  }
  void begin(std::string name, MetricType type, std::string help) {
    families_.push_back({std::move(name), std::move(help), type, {}});
  }
  void add(ClientMetric one, std::uint64_t value) {
    set(one, families_.back().type, value);
    families_.back().metric.push_back(std::move(one));
  }
  void add(ClientMetric one, const time_buckets& of) {
    auto& into = one.histogram;
    into.sample_count = of.count;
    into.sample_sum = of.sum;
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < of.bounds.size(); ++i)
      into.bucket.push_back({below += of.counts[i], of.bounds[i]});
    into.bucket.push_back({of.count, std::numeric_limits<double>::infinity()});
    families_.back().metric.push_back(std::move(one));
  }
  std::string text() const { return prometheus::TextSerializer{}.Serialize(families_); }

 private:
  static void set(ClientMetric& one, MetricType type, std::uint64_t value) {
    (type == MetricType::Gauge ? one.gauge.value : one.counter.value) = static_cast<double>(value);
  }
  std::vector<prometheus::MetricFamily> families_;
};

void write_events(page_writer& out, const numbers& counts) {
  out.begin("holdfast_serve_events_total", MetricType::Counter,
            "Acquires by how they ended, and leases by how they did.");
  for (const auto& [prefix, each] : counts.by_prefix())
    for (std::size_t i = 0; i < outcomes; ++i) {
      auto one = labelled(prefix);
      one.label.push_back({"event", std::string{to_string(static_cast<outcome>(i))}});
      out.add(std::move(one), each.events[i]);
    }
  out.begin("holdfast_serve_renewals_total", MetricType::Counter,
            "Renewals that clients asked for.");
  for (const auto& [prefix, each] : counts.by_prefix()) out.add(labelled(prefix), each.renewed);
}

void write_times(page_writer& out, const numbers& counts) {
  out.begin("holdfast_serve_wait_seconds", MetricType::Histogram,
            "How long granted acquires took.");
  for (const auto& [prefix, each] : counts.by_prefix()) out.add(labelled(prefix), each.waits);
  out.begin("holdfast_serve_hold_seconds", MetricType::Histogram, "How long leases were held.");
  for (const auto& [prefix, each] : counts.by_prefix()) out.add(labelled(prefix), each.holds);
}

void write_gauges(page_writer& out, const gauges& now) {
  out.begin("holdfast_serve_leases", MetricType::Gauge, "Leases that are held for clients.");
  for (const auto& [prefix, count] : now.leases) out.add(labelled(prefix), count);
  out.begin("holdfast_serve_waiting", MetricType::Gauge,
            "Requests that wait for a lock or a latch.");
  for (const auto& [prefix, count] : now.waiting) out.add(labelled(prefix), count);
  out.single("holdfast_serve_watchers", MetricType::Gauge, "Clients that read events.",
             now.watchers);
  out.single("holdfast_serve_connections", MetricType::Gauge, "Open connections.", now.connections);
}

}  // namespace

std::string prometheus_text(const numbers& counts, const gauges& now,
                            const holdfast::metrics& library) {
  page_writer out;
  write_events(out, counts);
  write_times(out, counts);
  write_gauges(out, now);
  out.single("holdfast_store_renewed_total", MetricType::Counter,
             "Leases in renewals that the store has answered.", library.renewed);
  out.single("holdfast_store_renew_failed_total", MetricType::Counter,
             "Renewals that the store has not answered.", library.renew_failed);
  out.single("holdfast_store_lost_total", MetricType::Counter, "Leases that were lost.",
             library.lost);
  return out.text();
}

}  // namespace holdfast::server
