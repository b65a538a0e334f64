// The verbs on etcd.
//
// Acquire, free: one transaction puts our key if nothing lies under the name. Taken: the same transaction puts it all
// the same, and reads the queue; which keys hold follows from the order of creation (lock_queue.hpp). Release: one
// transaction deletes the key if it is still the one we created. Waiters look at the queue by a watch
// (watch_manager.hpp). Everything lies under the client's lease (session.hpp).
//
// Each verb is an operation, driven in two ways (common/remote_engine.hpp).
#pragma once

#include "engines/common/remote_engine.hpp"
#include "engines/etcd/cluster.hpp"
#include "engines/etcd/own_entries.hpp"
#include "engines/etcd/requests.hpp"
#include "engines/etcd/session.hpp"
#include "engines/etcd/settings.hpp"
#include "engines/etcd/watch_manager.hpp"

#include <holdfast/engine.hpp>

#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::engines::etcd {

class etcd_engine final : public remote_engine, private session_listener {
 public:
  static result<std::unique_ptr<engine>> open(const settings& how, const engine_config& config);
  ~etcd_engine() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  bool contended(const grant& held) const noexcept override {
    return watch_manager_->is_contended(held.name);
  }
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  etcd_engine(const settings& how, const engine_config& config);

  // A queue as it was read, and when.
  struct seen_queue {
    lock_queue queue;
    std::int64_t revision = 0;
  };
  static constexpr int rounds = 16;  // against a queue that changes all the time
  // One enter: what is asked for, in which entry, and under which lease.
  struct enter_attempt {
    const request& ask;
    own_entries::ref mine;
    std::string key;
    lease_view under;
    int repeats = 0;

    // Its key in what was seen. A key of that name that another owner has put is not it: see clear_slot().
    const queue_entry* find_in(const lock_queue& seen) const noexcept {
      const auto* own = seen.find(key);
      return own != nullptr && own->owner == ask.owner ? own : nullptr;
    }
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
  operation<entered> enter_plainly(const enter_attempt& attempt, invocation how);
  operation<entered> enter_without_waiting(const enter_attempt& attempt, seen_queue seen,
                                           invocation how);
  operation<entered> enter_upgrade(const enter_attempt& attempt, invocation how);
  operation<entered> enter_or_wait(const enter_attempt& attempt, seen_queue seen, steady_time sent,
                                   invocation how);
  operation<std::optional<std::vector<grant>>> try_enter_all(std::span<const request> asks,
                                                             invocation how);
  rpc::TxnRequest enter_all_request(std::span<const enter_attempt> all, const lease_view& under,
                                    std::vector<own_entries::ref>& leaving) const;
  result<std::vector<grant>> read_all_entered(std::span<const enter_attempt> all,
                                              const rpc::TxnResponse& said, steady_time sent);
  error kept_changing(std::string_view name) const;
  operation<void> release_unlisted(std::string_view name, owner_id owner, invocation how);
  operation<bool> shrink(own_entries::ref mine, queue_entry own, fencing_token token, lock_mode to,
                         invocation how);

  // Enters by a mark, if nothing has changed since it was seen that it may; `needed` are the keys that must still be
  // there. Not granted, and `seen` anew: it has changed.
  operation<std::optional<entered>> enter_by_mark(const enter_attempt& attempt, seen_queue& seen,
                                                  const std::vector<const queue_entry*>& needed,
                                                  invocation how);
  operation<void> touch_some(const enter_attempt& attempt, const seen_queue& seen, invocation how);
  operation<bool> queue_upgrade(const enter_attempt& attempt, const own_entry& old, invocation how);
  operation<entered> refuse_capacity(const enter_attempt& attempt, const lock_queue& seen,
                                     bool queued, invocation how);
  operation<void> remove(std::string_view name, std::vector<stored> keys, invocation how);
  // Was there a key in our slot that an earlier owner of ours had put? It is gone now: no later owner has it.
  operation<bool> clear_slot(const enter_attempt& attempt, const lock_queue& seen, invocation how);
  class removal;
  void wait_for_removals() noexcept;  // but not for long

  // hand_over.cpp
  void note_successors(own_entry& holder, const seen_queue& seen, const queue_entry& own);
  std::vector<successor> successors_of(const own_entry& holder) const;
  operation<void> find_successors(own_entries::ref holder, invocation how);
  // Tells the waiter behind the key that was created at `after`, and is gone or holds no longer, if it may be passive:
  // it came before `until`.
  static constexpr auto anybody = std::numeric_limits<std::int64_t>::max();
  operation<void> call_next(std::string_view name, const lock_queue& seen, std::int64_t after,
                            std::int64_t until, invocation how);

  // late_requests.cpp
  operation<bool> end_late_requests(own_entries::ref mine, invocation how);  // was there any?
  void note_epoch(std::int64_t lease, const rpc::TxnResponse& said);

  // A transaction, with the failures as errors. `lease`: under which it puts keys; if that turns out to be gone, so is
  // the session.
  struct txn_options {
    std::int64_t lease = 0;
    bool repeatable = true;
    bool at_once = false;
  };
  struct txn_answer {
    rpc::TxnResponse said;
    bool repeated = false;
  };
  operation<txn_answer> transact(rpc::TxnRequest what, std::string_view name, txn_options with,
                                 invocation how);
  operation<seen_queue> look(std::string_view name, invocation how);
  using times_left = std::map<std::int64_t, nanoseconds>;  // of leases
  operation<times_left> remaining(std::vector<std::int64_t> leases, invocation how);
  operation<std::int64_t> counter_lease(nanoseconds keep, invocation how);

  std::string name_key(own_entry& mine, const request& ask, const lease_view& under,
                       std::int64_t replaces);
  std::string value_of(const own_entry& mine, marks with = {}) const;
  void note_repetition(own_entry& mine, bool repeated);
  bool is_queued(const own_entry& mine) const;
  // Its key is there: whatever fails from now on, even certainly, core has to ask about it or to take it away.
  void note_position(own_entry& mine, std::int64_t created);
  void begin_sweep(const std::vector<own_entries::ref>& leaving);
  void end_sweep(const std::vector<own_entries::ref>& leaving, const result<txn_answer>& got);
  rpc::TxnRequest enter_request(const enter_attempt& attempt, const epoch_view& epoch,
                                const std::vector<own_entries::ref>& leaving) const;
  seen_queue seen_in(const rpc::TxnResponse& said, std::string_view name) const;
  entered granted(const enter_attempt& attempt, steady_time sent, std::int64_t created,
                  fencing_token token);
  entered waiting(const enter_attempt& attempt, const seen_queue& seen, const queue_entry& own);
  entered ask_again(const request& ask) const;
  grant as_grant(std::string_view name, own_entry& of, const lease_view& under,
                 steady_time sent) const;
  error failed(const enter_attempt& attempt, error why);
  error gone(std::string_view name) const;
  // `is_gone`: from the store, too.
  void forget(const own_entries::ref& which, bool is_gone = false);
  void uncover(const own_entries::ref& old);
  lock_info describe(std::string_view name, const lock_queue& all, const times_left& left) const;
  progress outcome_of(const ticket& place);

  operation<void> confirm(std::span<renewal> batch, invocation how);
  void conclude_renewal(std::span<renewal> batch, const lease_view& now);
  void on_lease_gone(const lease_view& gone, std::string_view why) noexcept override;
  void on_suspect(std::size_t member) noexcept override { watch_manager_->leave(member); }

  const settings how_;
  const class clock& clock_;
  engine_listener& listener_;
  const std::string host_;
  const std::int64_t pid_;
  capabilities caps_;
  std::unique_ptr<cluster> cluster_;
  own_entries entries_;
  std::mutex removals_guard_;
  std::condition_variable removals_done_;
  std::size_t removals_ = 0;  // verbs that take a key away, under way
  std::unique_ptr<session> session_;
  std::unique_ptr<wait_registry> waits_;
  std::unique_ptr<watch_manager> watch_manager_;
};

}  // namespace holdfast::engines::etcd
