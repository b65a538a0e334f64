// The verbs on Consul, in the layouts of api.Lock and api.Semaphore.
//
// Acquire, free: one transaction that locks .lock and our own key if neither .lock nor a queue is there. Taken: our own
// key goes to the end of the queue, and the same transaction reads all that lies under the name (lock_state.hpp). A
// waiter watches the one before it, the first one watches .lock, and takes it by a transaction that compares what it
// saw. Release: one transaction that deletes both keys. Everything belongs to the client's session (sessions.hpp).
//
// Each verb is an operation, driven in two ways (common/remote_engine.hpp).
#pragma once

#include "engines/common/remote_engine.hpp"
#include "engines/common/wait_registry.hpp"
#include "engines/consul/agent.hpp"
#include "engines/consul/errors.hpp"
#include "engines/consul/lock_state.hpp"
#include "engines/consul/own_entries.hpp"
#include "engines/consul/release_order.hpp"
#include "engines/consul/sessions.hpp"
#include "engines/consul/watches.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::engines::consul {

struct its_turn {};  // nobody grants but the waiter itself, so news is only: look again
using wait_registry = engines::wait_registry<its_turn, agent>;

class consul_engine final : public remote_engine {
 public:
  static result<std::unique_ptr<engine>> open(const settings& how, const engine_config& config);
  ~consul_engine() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  // A holder does not hear of those that come behind it.
  bool contended(const grant&) const noexcept override { return true; }
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  consul_engine(const settings& how, const engine_config& config);

  using mine = std::shared_ptr<own_entry>;
  static constexpr int rounds = 16;  // against a lock that changes all the time

  // One enter: what is asked for, in which entry, and under which session.
  struct attempt {
    const request& ask;
    mine own;
    session_view under;
    lock_keys keys;
    std::string key;  // of the owner
    steady_time sent{};
    bool is_delayed = false;  // Consul keeps the lock for a while (lock-delay)
  };

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
  void end_await(const ticket& place) noexcept override {
    waits_->look_again(place.owner.sequence);
  }

  // enter.cpp
  operation<entered> enter_under(const request& ask, session_view under, invocation how);
  operation<entered> enter_or_wait(attempt& at, invocation how);
  operation<std::optional<lock_state>> enqueue(attempt& at, const queue_entry* base,
                                               invocation how);
  void note_queued(const attempt& at);
  // Granted, or it has changed: look again.
  operation<std::optional<entered>> take(attempt& at, const lock_state& seen, invocation how);
  operation<std::optional<entered>> take_next(attempt& at, invocation how);
  void note_idle_queue(const attempt& at, const lock_state& now);
  operation<entered> give_up(attempt& at, invocation how);
  operation<bool> end_and_remove(attempt& at, invocation how);
  operation<entered> refuse_capacity(attempt& at, const lock_state& seen, invocation how);
  const queue_entry* replaced_in(const attempt& at, const lock_state& seen) const;
  bool may_take(const attempt& at, const lock_state& seen) const;
  void forget_all(const std::vector<attempt>& of);
  transaction take_request(const attempt& at, const lock_state& seen,
                           const std::vector<std::string>& permit_sessions) const;
  void add_gate(transaction& to, const attempt& at, const lock_state& seen) const;
  void add_permits(transaction& to, const attempt& at, const lock_state& seen,
                   const std::vector<std::string>& permit_sessions) const;

  // grants.cpp
  operation<txn_reply> transact(transaction what, std::string_view name, std::string session,
                                invocation how);
  operation<lock_state> look(std::string_view name, invocation how);
  operation<void> move_epoch(const session_view& under, std::string_view name, invocation how);
  operation<bool> follow_epoch(attempt& at, const txn_reply& failed, invocation how);
  operation<void> end_late_requests(mine own, invocation how);
  entered granted(const attempt& at, const queue_entry& as, std::uint64_t lock_index);
  entered waiting(const attempt& at, const lock_state& seen, const queue_entry& own);
  entered ask_again(const request& ask) const;
  grant as_grant(std::string_view name, own_entry& of, steady_time sent) const;
  void adopt(own_entry& own, const queue_entry& there);
  queue_entry entry_of(const own_entry& own, bool holds) const;
  queue_entry entry_of(const attempt& at, bool holds) const;
  void begin_change(const attempt& by);
  void end_change(const mine& by);
  void note_repeated(const attempt& at, const txn_reply& got);
  error failed(const attempt& at, error why);
  error gone(std::string_view name, const owner_id& owner) const;
  error kept_changing(std::string_view name) const;
  void forget(const mine& own);
  std::string stamp();

  // release.cpp
  enum class alone { done, doubtful, changed };
  operation<alone> release_alone(mine own, invocation how);
  bool add_orphans_removal(transaction& to, const lock_state& seen, const lock_keys& keys) const;
  error not_released(const mine& own, error why);
  // Whatever the store has of this owner goes; false: there was nothing.
  operation<bool> remove(std::string_view name, owner_id owner, invocation how);
  static void add_removal(transaction& to, const lock_state& seen, const queue_entry& own,
                          const lock_keys& keys, const std::string& stamp);

  // modes.cpp
  operation<bool> shrink(mine own, const lock_state& seen, lock_mode to, invocation how);

  // renew.cpp
  operation<void> confirm(std::span<renewal> batch, const session_view& now, invocation how);
  operation<void> confirm_permits(renewal& of, invocation how);
  void conclude_renewal(std::span<renewal> batch, const session_view& now);
  void on_session_over(const session_view& gone, std::string_view why);
  void on_further_session_over(const std::string& id);
  void lose(const mine& own, std::string_view why);
  void note_new_grant(const mine& own);
  void plan_tick();
  void tick();
  void end_forgotten();
  void watch_own(const mine& own);
  bool on_own_key(const mine& own, const std::vector<kv_pair>& now, std::uint64_t index);
  bool on_own_folder(const mine& own, const std::vector<kv_pair>& now, std::uint64_t index);
  void relock(const mine& own, const lock_state& seen);
  void remove_in_background(const mine& own);
  operation<bool> end_entry(mine own, invocation how);

  // views.cpp
  lock_info describe(std::string_view name, const lock_state& seen) const;
  operation<kv_tree> read_tree(std::string prefix, std::string_view name, invocation how);
  nanoseconds counter_lasts(const kv_pair& of) const;
  class observation;

  const settings how_;
  const class clock& clock_;
  engine_listener& listener_;
  const std::string host_;
  const std::int64_t pid_;
  const std::array<std::uint64_t, 2> client_;
  capabilities caps_;
  own_entries entries_;
  std::unique_ptr<agent> agent_;
  std::unique_ptr<sessions> sessions_;
  std::unique_ptr<wait_registry> waits_;
  std::unique_ptr<watches> watches_;
  release_order releases_;
  std::atomic<std::uint64_t> last_stamp_{0};

  // Keys of watches that are not an owner's sequence, which is far smaller.
  static constexpr std::uint64_t own_watch = std::uint64_t{1} << 63U;
  std::atomic<std::uint64_t> last_observation_{std::uint64_t{1} << 62U};
  steady_time look_for_forgotten_at_{};  // of the agent's thread
  std::mutex grants_guard_;
  std::deque<std::pair<steady_time, std::weak_ptr<own_entry>>> new_grants_;  // not watched yet
  bool tick_planned_ = false;
  std::atomic<bool> ending_{false};
};

}  // namespace holdfast::engines::consul
