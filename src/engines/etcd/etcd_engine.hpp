// The verbs on etcd.
//
// Acquire, free: one transaction puts our key if nothing lies under the name. Taken: the same transaction puts it all
// the same, and reads the line; who holds follows from the order of creation (line.hpp). Release: one transaction
// deletes the key if it is still the one we created. Waiters look at the line by a watch (lookout.hpp). Everything
// lies under the client's lease (session.hpp).
//
// Each verb is a coroutine, driven in two ways (verb.hpp).
#pragma once

#include "engines/etcd/book.hpp"
#include "engines/etcd/cluster.hpp"
#include "engines/etcd/lookout.hpp"
#include "engines/etcd/requests.hpp"
#include "engines/etcd/session.hpp"
#include "engines/etcd/settings.hpp"

#include <holdfast/engine.hpp>

#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::engines::etcd {

class etcd_engine final : public engine, private session_listener {
 public:
  static result<std::unique_ptr<engine>> open(const settings& how, const engine_config& config);
  ~etcd_engine() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<entered> enter(const request& ask, const call& limits) override;
  result<progress> await(const ticket& place, const call& limits) override;
  result<void> leave(const ticket& place, const call& limits) override;
  result<void> renew(std::span<renewal> batch, const call& limits) override;
  result<void> release(const grant& held, const call& limits) override;
  result<grant> downgrade(const grant& held, lock_mode to, const call& limits) override;
  result<std::vector<grant>> enter_all(std::span<const request> asks, const call& limits) override;
  result<entered> settle(const request& ask, const call& limits) override;
  result<lock_info> inspect(std::string_view name, const call& limits) override;
  result<std::vector<lock_info>> list(std::string_view prefix, std::size_t limit,
                                      const call& limits) override;
  result<std::size_t> revoke(std::string_view name, const call& limits) override;
  result<std::vector<finding>> diagnose(const call& limits) override;
  result<counter> count(const counter_request& ask, const call& limits) override;
  result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                     const call& limits) override;
  bool contended(const grant& held) const noexcept override {
    return lookout_->is_contended(held.name);
  }

  void start_enter(const request& ask, const call& limits,
                   completion<entered>& done) noexcept override;
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_leave(const ticket& place, const call& limits,
                   completion<void>& done) noexcept override;
  void start_release(const grant& held, const call& limits,
                     completion<void>& done) noexcept override;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<void>& done) noexcept override;
  void start_enter_all(std::span<const request> asks, const call& limits,
                       completion<std::vector<grant>>& done) noexcept override;
  void start_settle(const request& ask, const call& limits,
                    completion<entered>& done) noexcept override;
  void start_inspect(std::string_view name, const call& limits,
                     completion<lock_info>& done) noexcept override;
  void start_count(const counter_request& ask, const call& limits,
                   completion<counter>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  etcd_engine(const settings& how, const engine_config& config);

  // A line as it was read, and when.
  struct sight {
    line of;
    std::int64_t revision = 0;
  };
  // Who asks, in which entry, and under which lease.
  struct asker {
    const request& ask;
    book::ref mine;
    std::string key;
    lease_view under;

    // Its key in what was seen. A key of that name that another owner has put is not it: see clear_slot().
    const place* find_in(const line& seen) const noexcept {
      const auto* own = seen.find(key);
      return own != nullptr && own->owner == ask.owner ? own : nullptr;
    }
  };

  // The verbs. What they are given stays alive until they are done.
  verb<entered> enter_verb(const request& ask, way how);
  verb<entered> enter_plainly(const asker& who, way how);
  verb<entered> try_verb(const asker& who, sight seen, way how);
  verb<entered> upgrade_verb(const asker& who, way how);
  verb<entered> stand_verb(const asker& who, sight seen, steady_time sent, way how);
  verb<std::vector<grant>> enter_all_verb(std::span<const request> asks, way how);
  verb<entered> settle_verb(const request& ask, way how);
  verb<void> leave_verb(const ticket& place, way how);
  verb<void> release_verb(const grant& held, way how);
  verb<void> release_stranger_verb(std::string_view name, owner_id owner, way how);
  verb<grant> downgrade_verb(const grant& held, lock_mode to, way how);
  verb<bool> shrink(book::ref mine, place own, fencing_token token, lock_mode to, way how);
  verb<lock_info> inspect_verb(std::string_view name, way how);
  verb<std::vector<lock_info>> list_verb(std::string_view prefix, std::size_t limit, way how);
  verb<std::size_t> revoke_verb(std::string_view name, way how);
  verb<counter> count_verb(const counter_request& ask, way how);

  // Enters by a mark, if nothing has changed since it was seen that it may; `needed` are the keys that must still be
  // there. Not granted, and `seen` anew: it has changed.
  verb<std::optional<entered>> step_in(const asker& who, sight& seen,
                                       const std::vector<const place*>& needed, way how);
  verb<void> touch_some(const asker& who, const sight& seen, way how);
  verb<bool> queue_upgrade(const asker& who, const entry& old, way how);
  verb<entered> refuse_capacity(const asker& who, const line& seen, bool queued, way how);
  verb<void> remove(std::string_view name, std::vector<stored> keys, way how);
  // Was there a key in our slot that an earlier owner of ours had put? It is gone now: nobody inherits it.
  verb<bool> clear_slot(const asker& who, const line& seen, way how);
  class farewell;
  void see_off() noexcept;  // waits for those who are on their way out, but not for long

  // handover.cpp
  void note_heirs(entry& holder, const sight& seen, const place& own);
  std::vector<heir> heirs_of(const entry& holder) const;
  verb<void> find_heirs(book::ref holder, way how);
  // Tells the one behind the key that was created at `after`, and is gone or holds no longer, if it may be asleep: it
  // came before `until`.
  static constexpr auto anybody = std::numeric_limits<std::int64_t>::max();
  verb<void> call_next(std::string_view name, const line& seen, std::int64_t after,
                       std::int64_t until, way how);

  // doubt.cpp
  verb<bool> end_doubt(book::ref mine, way how);  // was there any?
  void note_fence(std::int64_t lease, const rpc::TxnResponse& said);

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
  verb<txn_answer> transact(rpc::TxnRequest what, std::string_view name, txn_options with, way how);
  verb<sight> look(std::string_view name, way how);
  using times_left = std::map<std::int64_t, nanoseconds>;  // of leases
  verb<times_left> remaining(std::vector<std::int64_t> leases, way how);
  verb<std::int64_t> counter_lease(nanoseconds keep, way how);

  std::string name_key(entry& mine, const request& ask, const lease_view& under,
                       std::int64_t replaces);
  std::string value_of(const entry& mine, marks with = {}) const;
  void note_repetition(entry& mine, bool repeated);
  bool is_queued(const entry& mine) const;
  void note_place(entry& mine, const place& own);
  void begin_sweep(const std::vector<book::ref>& leaving);
  void end_sweep(const std::vector<book::ref>& leaving, const result<txn_answer>& got);
  rpc::TxnRequest enter_request(const asker& who, const fence_view& fence,
                                const std::vector<book::ref>& leaving) const;
  sight sight_in(const rpc::TxnResponse& said, std::string_view name) const;
  entered granted(const asker& who, steady_time sent, std::int64_t created, fencing_token token);
  entered waiting(const asker& who, const sight& seen, const place& own);
  entered ask_again(const request& ask) const;
  grant as_grant(std::string_view name, entry& of, const lease_view& under, steady_time sent) const;
  error failed(const asker& who, error why);
  error gone(std::string_view name) const;
  // `is_gone`: from the store, too.
  void forget(const book::ref& which, bool is_gone = false);
  void uncover(const book::ref& old);
  lock_info describe(std::string_view name, const line& all, const times_left& left) const;
  progress outcome_of(const ticket& place);

  verb<void> confirm_verb(std::span<renewal> batch, way how);
  void conclude_renewal(std::span<renewal> batch, const lease_view& now);
  bool needs_proof(std::span<const renewal> batch, const lease_view& now) const;
  void on_lease_gone(std::int64_t id, std::string_view why) noexcept override;
  void on_suspect(std::size_t member) noexcept override { lookout_->leave(member); }

  const settings how_;
  const class clock& clock_;
  engine_listener& listener_;
  const std::string host_;
  const std::int64_t pid_;
  capabilities caps_;
  std::unique_ptr<cluster> cluster_;
  book book_;
  std::mutex parting_;
  std::condition_variable parted_;
  std::size_t leaving_ = 0;  // verbs that take a key away, under way
  std::unique_ptr<session> session_;
  std::unique_ptr<waiting_room> room_;
  std::unique_ptr<lookout> lookout_;
};

}  // namespace holdfast::engines::etcd
