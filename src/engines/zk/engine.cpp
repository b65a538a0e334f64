#include "engines/zk/engine.hpp"

#include "engines/common/server_clock.hpp"
#include "engines/zk/zk_engine.hpp"

#include <fmt/format.h>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;

// The leader looks once per tick which sessions are over, and a session lasts two ticks at least.
nanoseconds expiry_takes(nanoseconds session) { return session / 2 + 1s; }

std::string session_text(const settings& how, nanoseconds session) {
  return session == how.session
             ? format_duration(session)
             : fmt::format("{} (?session={} was asked for)", format_duration(session),
                           format_duration(how.session));
}

std::string limits_of(const settings& how, nanoseconds session) {
  auto out = fmt::format(
      "All locks of a client hang on one session, which the ensemble keeps for {} after it last "
      "heard of us, and up to a "
      "tick longer. So a dead holder is noticed after that, however short the ttl of its lock; and "
      "a lease is believed "
      "for three fifths of it at most, because the leader hears of us through another server, up "
      "to "
      "half a tick late. No "
      "upgradeable reads, no priorities; only readers and permits can barge.",
      session_text(how, session));
  if (how.nodes->is_plain)
    out +=
        " One plain node per lock: every release wakes every waiter, in no order, and an "
        "operator's deletion in the "
        "very moment of a release may cost another holder its node.";
  if (how.nodes->has_permits)
    out += " A semaphore gives at most 1,000 permits to one acquire, each is a node.";
  return out;
}

capabilities describe_engine(const settings& how, nanoseconds session) {
  capabilities caps;
  caps.engine = how.nodes->name == "curator" ? "zk" : fmt::format("zk ({})", how.nodes->name);
  caps.fifo = !how.nodes->is_plain;
  caps.shared = !how.nodes->reader.empty();
  caps.permits = how.nodes->has_permits;
  caps.atomic_multi = !how.nodes->is_plain;
  caps.counters = caps.observe = caps.cross_process = true;
  caps.listing = !how.nodes->is_plain;  // its waiters are in no node
  caps.survives_restart = true;
  caps.wakeup = wakeup_kind::push;
  caps.clock = expiry_clock::server;
  caps.token = token_origin::store_revision;
  caps.fencing = fencing_strength::strict;
  caps.min_ttl = 100ms;
  caps.max_ttl = std::chrono::hours{24 * 30};
  caps.drift_ppm = server_drift_ppm;
  caps.margin = server_margin;
  caps.dead_holder_bound = session + expiry_takes(session);
  caps.expiry_slack = session + expiry_takes(session);
  caps.longest_validity = believed_time(session);
  caps.session_needs_heartbeats = true;
  caps.validity_setting =
      fmt::format("session={} in the store's address", session_text(how, session));
  caps.exclusion =
      "While a majority of the ensemble keeps its data and our clock does not run more than 1 % "
      "apart from that of its "
      "leader. A server that is cut off grants nothing.";
  caps.token_scope =
      "The transaction id (zxid) that created the node: strictly rising over all names, over "
      "restarts and changes of "
      "leader. Only an ensemble that was set up anew begins again.";
  caps.limits = limits_of(how, session);
  return caps;
}

}  // namespace

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  auto how = read_settings(config.url);
  if (!how) return std::move(how).error();
  return zk_engine::open(*how, config);
}

zk_engine::zk_engine(const settings& how, const engine_config& config)
    : how_(how),
      layout_(*how.nodes),
      clock_(config.clock),
      listener_(config.listener),
      host_(config.host.substr(0, 64)),
      pid_(config.pid) {}

result<std::unique_ptr<engine>> zk_engine::open(const settings& how, const engine_config& config) {
  std::unique_ptr<zk_engine> self{new zk_engine{how, config}};
  auto started = ensemble::start(how, self->clock_, *self);
  if (!started) return std::move(started).error();
  self->ensemble_ = std::move(*started);
  auto& with = *self->ensemble_;
  self->waits_ = std::make_unique<wait_registry>(with.driver());
  self->watches_ = std::make_unique<watches>(with);
  self->janitor_ = std::make_unique<janitor>(with);
  with.connect();
  // Proves that the ensemble answers, that a majority agrees, and that the chroot is there.
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 5s;
  batch first;
  first.agree(with.root()).exists(with.root());
  auto got = with.run(first, soon, how.where.size());  // each server once
  if (!got) return std::move(got).error();
  if (!got->ok(1)) return refusal(got->err(1), {}, how.url);
  const auto session = with.current();
  if (session.number == 0)
    return error{errc::unavailable, fmt::format("{}: the session has ended at once.", how.url)};
  self->caps_ = describe_engine(how, session.length);
  return std::unique_ptr<engine>{std::move(self)};
}

// The session is ended, and with it everything that is left; what is under way completes, and whoever waits is told,
// while there is still a thread that keeps the times.
zk_engine::~zk_engine() {
  ending_ = true;
  if (janitor_) janitor_->end();
  if (waits_) waits_->look_again_all();
  if (ensemble_) ensemble_->close();
  if (waits_) waits_->look_again_all();
  if (ensemble_) ensemble_->stop();
}

}  // namespace holdfast::engines::zk
