// redis+cluster: a lock is in one slot of a Redis Cluster, and each shard is served by an engine of its own, with
// connections of its own. So what happens to one shard does not touch the others.
//
// Which shard has which slot is learnt from the nodes, and again before each connect and whenever a node says that a
// slot is elsewhere (MOVED). A shard whose replica takes over stays the same engine with another address. While a
// slot is on its way from one node to another its locks are unavailable (ASK, TRYAGAIN): their keys are on two nodes,
// and a script that followed would see half of them (docs/decisions/0024-redis-ha.md).
//
// Each shard is listened to at its own node, because a node counts only its own listeners (PUBSUB NUMSUB). Messages
// reach every node, so one that says "granted" only wakes the waiter, which asks again (native::read_push).
#pragma once

#include "engines/common/remote_engine.hpp"
#include "engines/redis/cluster_map.hpp"
#include "engines/redis/cluster_part.hpp"
#include "engines/redis/peers.hpp"
#include "engines/redis/settings.hpp"
#include "net/reactor.hpp"

#include <holdfast/engine.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

class cluster final : public remote_engine {
 public:
  static result<std::unique_ptr<engine>> open(const settings& how, const engine_config& config);
  ~cluster() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  bool contended(const grant&) const noexcept override { return true; }
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

  operation<entered> do_enter(const request& ask, invocation how) override;
  operation<void> do_leave(const ticket& place, invocation how) override;
  operation<void> do_release(const grant& held, invocation how) override;
  operation<entered> do_settle(const request& ask, invocation how) override;
  operation<session_proof> do_renew(std::span<renewal> batch, invocation how) override;
  operation<grant> do_downgrade(const grant& held, lock_mode to, invocation how) override;
  operation<std::vector<grant>> do_enter_all(std::span<const request> asks,
                                             invocation how) override;
  operation<lock_info> do_inspect(std::string_view name, invocation how) override;
  operation<std::vector<lock_info>> do_list(std::string_view prefix, std::size_t limit,
                                            invocation how) override;
  operation<std::size_t> do_revoke(std::string_view name, invocation how) override;
  operation<counter> do_count(const counter_request& ask, invocation how) override;
  operation<std::vector<counter_info>> do_list_counters(std::string_view prefix, std::size_t limit,
                                                        invocation how) override;
  void end_await(const ticket& place) noexcept override;

 private:
  struct shard {
    node_address where;  // under guard_
    std::unique_ptr<cluster_part> verbs;
  };
  static constexpr std::uint16_t no_shard = 0xffff;

  cluster(const settings& how, const engine_config& config);

  // The verb, on the shard that has the name; again on another one, when nothing was done because the slot is there.
  template <class T>
  using verb_of = std::function<operation<T>(cluster_part&)>;
  template <class T>
  operation<T> routed(std::string_view name, const verb_of<T>& verb, invocation how);
  result<void> learn_first();
  class refreshing;
  class renewing;

  unsigned slot_of_name(std::string_view name) const;
  cluster_part* part_of(std::string_view name) const;  // null: no shard is known to have it
  std::vector<cluster_part*> all_parts() const;
  std::vector<cluster_part*> used_parts() const;  // those that have slots
  error not_served(std::string_view name, const result<void>& learnt) const;

  // ---- of the reactor's thread
  void refresh(std::function<void(const result<void>&)> done);
  void learn(const peers::answers& got, const std::vector<std::string>& hosts);
  bool has_slots(std::size_t number) const;
  void apply(const cluster_map& map);
  void share_out(const cluster_map& map, const std::vector<std::size_t>& shard_of_master);
  std::vector<std::size_t> match(const cluster_map& map);
  std::size_t add_shard(const node_address& where, std::vector<unsigned> tags);
  void meet(const cluster_map& map);
  void forget_nodes_but(const std::vector<node_address>& known);
  error nobody_answers(const peers::answers& got) const;

  net::address address_of(const node_address& node) const;
  settings to_node(const node_address& node) const;
  void on_redirected();

  const settings how_;
  const store_url url_;
  const engine_config config_;
  const pid_t process_ = getpid();
  capabilities caps_;
  std::unique_ptr<net::reactor> reactor_;
  const std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  // of the reactor's thread
  std::atomic<bool> ending_{false};
  std::atomic<std::uint64_t> redirections_{0};
  std::atomic<bool> refresh_is_posted_{false};
  std::vector<std::function<void(const result<void>&)>> awaiting_map_;
  known_epochs epochs_;
  std::unique_ptr<peers> peers_;
  std::optional<error> opening_failure_;  // of the engine of a shard

  mutable std::mutex guard_;
  std::array<std::uint16_t, slot_count> shard_of_slot_{};
  std::vector<std::unique_ptr<shard>> shards_;  // none ever goes while we live
  std::vector<bool> is_used_;                   // by shard: it has slots
  std::size_t slots_missing_ = 0, masters_failed_ = 0;
};

}  // namespace holdfast::engines::redis
