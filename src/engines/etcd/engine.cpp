#include "engines/etcd/engine.hpp"

#include "engines/common/server_clock.hpp"
#include "engines/etcd/etcd_engine.hpp"

#include <fmt/format.h>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

// etcd looks for dead leases twice a second, and a removal takes a round among the members.
constexpr nanoseconds expiry_takes = 1s;

capabilities describe_engine(const settings& how, nanoseconds session) {
  capabilities caps;
  caps.engine = "etcd";
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
  caps.dead_holder_bound = session + expiry_takes;
  caps.expiry_slack = session + expiry_takes;
  caps.longest_validity = session;
  caps.session_needs_heartbeats = true;
  caps.validity_setting =
      fmt::format("session={} in the store's address", format_duration(session));
  caps.exclusion =
      "While a majority of the cluster keeps its data and our clock does not run more than 1 % "
      "apart from that of its leader. A member that is cut off neither grants nor shows anything.";
  caps.token_scope =
      "The revision of the store: strictly rising over all names, over restarts and changes of "
      "leader. Only a store that was restored from a backup begins again where the backup ends.";
  caps.limits = fmt::format(
      "All locks of a client hang on one session, which the cluster keeps for {} after it last "
      "heard of us{}. So a dead holder is noticed after that, however short the ttl of its lock; "
      "and a lease is never believed for longer than that, however long its ttl. A new leader "
      "gives every session its full time anew, so after a change of leader it can take that much "
      "longer.",
      format_duration(session),
      session > how.session ? fmt::format(" (?session={} was asked for, and the server raised it)",
                                          format_duration(how.session))
                            : " (?session=)");
  return caps;
}

}  // namespace

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  auto how = read_settings(config.url);
  if (!how) return std::move(how).error();
  return etcd_engine::open(*how, config);
}

etcd_engine::etcd_engine(const settings& how, const engine_config& config)
    : how_(how),
      clock_(config.clock),
      listener_(config.listener),
      host_(config.host.substr(0, 64)),
      pid_(config.pid) {}

result<std::unique_ptr<engine>> etcd_engine::open(const settings& how,
                                                  const engine_config& config) {
  auto members = cluster::start(how);
  if (!members) return std::move(members).error();
  std::unique_ptr<etcd_engine> self{new etcd_engine{how, config}};
  self->cluster_ = std::move(*members);
  auto& with = *self->cluster_;
  self->waits_ = std::make_unique<wait_registry>(with.driver());
  self->session_ =
      std::make_unique<session>(with, self->clock_, static_cast<session_listener&>(*self));
  self->watch_manager_ =
      std::make_unique<watch_manager>(with, *self->session_, self->entries_, *self->waits_,
                                      self->clock_, self->listener_, how.root);
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 5s;
  if (with.can_login())
    if (auto in = with.log_in(soon); !in) return std::move(in).error();
  // The session proves that the cluster answers, and shows which ttl it grants. One that is full grants none; then the
  // operator must be able to look all the same.
  nanoseconds granted = how.session;
  const invocation here{soon, true};
  if (auto lease = self->session_->ensure(here).run()) {
    granted = lease->ttl;
  } else if (!self->session_->is_refused_for_space()) {
    return std::move(lease).error();
  }
  self->caps_ = describe_engine(how, granted);
  return std::unique_ptr<engine>{std::move(self)};
}

// Releases under way hand over first: the end of the session would take their keys, and tell no waiter. Those
// of ours that still wait are told, then the session is given back, and with it everything that is left.
etcd_engine::~etcd_engine() {
  wait_for_removals();
  if (watch_manager_) watch_manager_->end();
  if (waits_) waits_->look_again_all();
  if (session_) session_->end();
  if (cluster_) cluster_->stop();
}

operation<etcd_engine::txn_answer> etcd_engine::transact(rpc::TxnRequest what,
                                                         std::string_view name, txn_options with,
                                                         invocation how) {
  const question ask{method::txn, bytes_of(what), with.repeatable, with.at_once};
  auto said = co_await cluster_->ask(ask, how);
  if (!said.got) co_return about(std::move(said.got).error(), name);
  if (!said.got->ok()) {
    if (with.lease != 0 && lease_is_gone(*said.got))
      session_->is_gone(with.lease, "the session has ended in the store");
    auto why = status_error(*said.got, name, how_.url);
    if (said.repeated)  // an earlier try may have done it
      co_return error{
          with.lease != 0 || why.code() == errc::unavailable ? errc::outcome_unknown : why.code(),
          why.message()};
    co_return why;
  }
  txn_answer out;
  out.repeated = said.repeated;
  if (!out.said.ParseFromString(said.got->body)) co_return unexpected_answer(name, how_.url);
  co_return out;
}

}  // namespace holdfast::engines::etcd
