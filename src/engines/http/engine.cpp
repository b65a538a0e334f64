#include "engines/http/engine.hpp"

#include "engines/common/server_clock.hpp"
#include "engines/http/http_engine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::http {

namespace {

using namespace std::chrono_literals;

// What the service's store has, less what does not come through, with the session in between.
capabilities describe_engine(const settings& how, const session_begun& with) {
  auto caps = with.caps;
  const auto store = caps.engine;
  caps.engine = fmt::format("http ({})", store);
  caps.cross_process = true;
  caps.immediate = caps.outlives_client = false;
  caps.wakeup = wakeup_kind::push;
  caps.clock = expiry_clock::server;
  caps.min_ttl = std::max<nanoseconds>(caps.min_ttl, 20ms);
  caps.drift_ppm = std::max(caps.drift_ppm, server_drift_ppm);
  caps.margin += server_margin;
  caps.expiry_slack += 50ms;
  caps.dead_holder_bound = how.grace + how.grace / 4 + 250ms;
  caps.session_needs_heartbeats = true;
  if (caps.longest_validity == 0ns || how.grace <= caps.longest_validity) {
    caps.longest_validity = how.grace;
    caps.validity_setting =
        fmt::format("grace={} in the store's address", format_duration(how.grace));
  }
  caps.exclusion = fmt::format(
      "As good as the store of the service, while our clock and the service's do not run more than "
      "1 % apart. Its store ({}): {}",
      store, with.caps.exclusion);
  caps.limits = fmt::format(
      "A client that the service has not heard of for {} loses its locks, so a lease is never "
      "believed for longer than that after the service last answered: a pause, a network fault or "
      "an "
      "outage of the service of that length costs the lease. ?grace= changes it. After a restart "
      "of "
      "the service within that time leases go on where its store lets a successor have them "
      "(file:); "
      "waiters queue up again. Behind a balancer that moves clients between services every move is "
      "the loss of all leases. Its store: {}",
      format_duration(how.grace), with.caps.limits);
  return caps;
}

}  // namespace

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  auto how = read_settings(config.url);
  if (!how) return std::move(how).error();
  return http_engine::open(*how, config);
}

http_engine::http_engine(const settings& how, const engine_config& config)
    : how_(how), client_(config.client), clock_(config.clock), listener_(config.listener) {}

result<std::unique_ptr<engine>> http_engine::open(const settings& how,
                                                  const engine_config& config) {
  std::unique_ptr<http_engine> self{new http_engine{how, config}};
  auto started = link::start(how, config, *self);
  if (!started) return std::move(started).error();
  self->link_ = std::move(*started);
  const auto begun = self->link_->open();
  if (!begun) return begun.error();
  if (begun->grace < how.grace)
    return error{errc::misconfigured,
                 fmt::format("{} keeps sessions for {} at most; ask for a shorter ?grace=.",
                             how.url, format_duration(begun->grace))};
  self->link_->promised(begun->caps);
  self->caps_ = describe_engine(how, *begun);
  return std::unique_ptr<engine>{std::move(self)};
}

http_engine::~http_engine() {
  if (link_) link_->close();
}

}  // namespace holdfast::engines::http
