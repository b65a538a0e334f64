#include "engines/consul/engine.hpp"

#include "engines/common/server_clock.hpp"
#include "engines/consul/consul_engine.hpp"

#include <fmt/format.h>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

// The leader notices an expired session by a timer, and its end is agreed on by the servers.
constexpr nanoseconds ending_takes = 1s;

nanoseconds death_bound(const settings& how) {
  return 2 * nanoseconds{how.session} + how.lock_delay + ending_takes;
}

std::string limits_text(const settings& how) {
  return fmt::format(
      "All locks of a client hang on one session of {} (?session=; Consul takes none below 10 s). "
      "Consul ends it at the latest 2 x {} after it last heard of us, and then keeps the lock for "
      "another {} (?lock_delay=): so a dead holder is noticed within {}, however short the ttl of "
      "its lock, and a lease is believed for {} at most, however long its ttl. A new leader gives "
      "every session its time anew. Anybody with write access may delete or overwrite a held key, "
      "or destroy a session: that is announced as a loss. Several permits of one client on one "
      "semaphore need a session each, and one acquire can have 32 at most. No priorities. Other "
      "programs know no readers: beside readers they are kept out by the session of one of them, "
      "and if that one dies, until another has taken its place.",
      format_duration(how.session), format_duration(how.session), format_duration(how.lock_delay),
      format_duration(death_bound(how)), format_duration(how.session));
}

capabilities describe_engine(const settings& how) {
  capabilities caps;
  caps.engine = "consul";
  caps.fifo = caps.shared = caps.upgrade = caps.permits = true;
  caps.counters = caps.observe = caps.listing = caps.atomic_multi = caps.cross_process = true;
  caps.survives_restart = true;
  caps.wakeup = wakeup_kind::push;
  caps.clock = expiry_clock::server;
  caps.token = token_origin::store_revision;
  caps.fencing = fencing_strength::strict;
  caps.min_ttl = 100ms;
  caps.max_ttl = std::chrono::hours{24 * 30};
  caps.drift_ppm = server_drift_ppm;
  caps.margin = server_margin;
  caps.dead_holder_bound = death_bound(how);
  caps.expiry_slack = death_bound(how);
  caps.longest_validity = how.session;
  caps.session_needs_heartbeats = true;
  caps.validity_setting =
      fmt::format("session={} in the store's address", format_duration(how.session));
  caps.exclusion =
      "While a majority of the servers keeps its data, no operator destroys a session or a key, "
      "and "
      "our clock does not run more than 1 % apart from that of their leader. A server that is cut "
      "off grants nothing.";
  caps.token_scope =
      "The index of the raft log at which the lock was granted: strictly rising over all names, "
      "over restarts and changes of leader. Only a datacenter that was set up anew begins again.";
  caps.limits = limits_text(how);
  return caps;
}

}  // namespace

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  auto how = read_settings(config.url);
  if (!how) return std::move(how).error();
  return consul_engine::open(*how, config);
}

consul_engine::consul_engine(const settings& how, const engine_config& config)
    : how_(how),
      clock_(config.clock),
      listener_(config.listener),
      host_(config.host.substr(0, 64)),
      pid_(config.pid),
      client_(config.client) {}

result<std::unique_ptr<engine>> consul_engine::open(const settings& how,
                                                    const engine_config& config) {
  auto started = agent::start(how);
  if (!started) return std::move(started).error();
  std::unique_ptr<consul_engine> self{new consul_engine{how, config}};
  self->agent_ = std::move(*started);
  self->waits_ = std::make_unique<wait_registry>(*self->agent_);
  self->watches_ = std::make_unique<watches>(*self->agent_);
  self->sessions_ = std::make_unique<sessions>(
      *self->agent_, self->clock_, fmt::format("holdfast {} {}", self->host_, self->pid_),
      [to = self.get()](const session_view& gone, std::string_view why) {
        to->on_session_over(gone, why);
      },
      [to = self.get()](const std::string& id) { to->on_further_session_over(id); });
  self->caps_ = describe_engine(how);
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 5s;
  // Proves that the servers have a leader, and that we may write.
  auto made = self->sessions_->ensure({soon, true}).run();
  if (!made) return std::move(made).error();
  return std::unique_ptr<engine>{std::move(self)};
}

// Releases under way come first. Then the sessions are destroyed, and with them everything that is left; what is under
// way completes.
consul_engine::~consul_engine() {
  releases_.wait_for_all(std::chrono::steady_clock::now() + 1s);
  ending_ = true;
  if (watches_) watches_->end();
  if (waits_) waits_->look_again_all();
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 1s;
  if (sessions_) sessions_->destroy_all(soon);
  if (agent_) agent_->stop();
  if (waits_) waits_->look_again_all();
}

}  // namespace holdfast::engines::consul
