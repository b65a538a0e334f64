// /metrics: the text format of Prometheus.
#pragma once

#include "metrics.hpp"

#include <holdfast/observer.hpp>

#include <cstddef>
#include <map>
#include <string>

namespace holdfast::server {

// What there is now, by prefix where it is of locks.
struct gauges {
  std::map<std::string, std::size_t, std::less<>> leases{}, waiting{};
  std::size_t watchers = 0, connections = 0;
};

std::string prometheus_text(const numbers& counts, const gauges& now,
                            const holdfast::metrics& library);

}  // namespace holdfast::server
