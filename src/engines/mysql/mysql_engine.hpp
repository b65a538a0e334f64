// The verbs over the tables. How a name's rows change is in lock_rows.hpp, renewals are in session.hpp, waiting in
// listener.hpp; this puts them together.
//
// Blocking verbs run on the calling thread with a connection of the pool. The start_ verbs run on a few threads of the
// engine's own (engines/common/blocking_engine.hpp); renewals have a thread and a connection of their own, so that a
// flood of acquires never costs a held lease.
#pragma once

#include "engines/common/blocking_engine.hpp"
#include "engines/common/thread_pool.hpp"
#include "engines/common/timer_thread.hpp"
#include "engines/common/watch_loop.hpp"
#include "engines/mysql/listener.hpp"
#include "engines/mysql/lock_rows.hpp"
#include "engines/mysql/pool.hpp"
#include "engines/mysql/session.hpp"
#include "engines/mysql/waits.hpp"
#include "engines/mysql/watchdog.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::engines::mysql {

inline constexpr nanoseconds longest_recheck =
    std::chrono::seconds{10};  // of a waiter that is not told

// Releases that were started and have not been served. Whatever is asked about the same name afterwards must find it
// released; not only by the same client, for all clients of this process are used by the same program.
//
// The asking thread would wait for another one to begin the release. It serves it itself instead, if it has not begun;
// the thread that was to do it only delivers the outcome, for what follows it is not for an asking thread to run.
class releases {
 public:
  struct pending {
    std::function<result<void>()> work;
    steady_time deadline;
    bool begun = false;
    std::optional<result<void>> outcome{};
  };

  static releases& under_way();
  bool any() const noexcept { return count_.load() != 0; }
  std::shared_ptr<pending> begin(const std::string& what, std::function<result<void>()> work,
                                 steady_time deadline);
  // Served when this returns, by us or by another.
  result<void> serve(const std::string& what, const std::shared_ptr<pending>& which);
  // Waits for all that were begun about it, or serves them.
  void wait_for(const std::string& what, const call& limits);

 private:
  using lock = std::unique_lock<std::mutex>;
  void run(lock& held, const std::string& what, const std::shared_ptr<pending>& which);

  std::atomic<unsigned> count_{0};
  std::mutex guard_;
  std::condition_variable_any ended_;
  std::map<std::string, std::vector<std::shared_ptr<pending>>, std::less<>> all_;
};

// Rows that were left where this client handed over, by name: see sql.hpp. Only hints: a row may be gone.
class leftover_rows {
 public:
  void add(std::string_view name, std::uint64_t seq);
  std::optional<std::uint64_t> take(std::string_view name);

 private:
  std::mutex guard_;
  std::map<std::string, std::vector<std::uint64_t>, std::less<>> all_;
};

class mysql_engine final : public blocking_engine {
 public:
  static result<std::unique_ptr<engine>> open(const settings& how, const engine_config& config);
  ~mysql_engine() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<entered> enter(const request& ask, const call& limits) override;
  result<progress> await(const ticket& place, const call& limits) override;
  result<void> leave(const ticket& place, const call& limits) override;
  result<session_proof> renew(std::span<renewal> batch, const call& limits) override;
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
  result<std::vector<counter_info>> list_counters(std::string_view prefix, std::size_t limit,
                                                  const call& limits) override;
  bool contended(const grant&) const noexcept override { return true; }

  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_release(const grant& held, const call& limits,
                     completion<void>& done) noexcept override;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  class entering;
  class watching;
  mysql_engine(const settings& how, const engine_config& config);
  result<void> begin(const call& limits);
  result<void> make_tables(const call& limits);

  // One name in a transaction of its own: `change` is called with its rows, or not at all when there are none and
  // `create` is 0 (else the capacity to make it with). Afterwards: commit, and wake clients that have news. `change`
  // may be called again when nothing came of the first time.
  result<bool> with_lock_rows(std::string_view name, const owner_id& owner, std::uint64_t create,
                              const call& limits,
                              const std::function<result<void>(lock_rows&)>& change);
  result<bool> try_lock_rows(std::string_view name, const owner_id& owner, std::uint64_t create,
                             const call& limits,
                             const std::function<result<void>(lock_rows&)>& change, bool& again);
  result<void> finish(connection& on, std::span<lock_rows> changed, const sending& asked);
  grant grant_of(const lock_rows::entry& held, std::string_view name, microseconds_count now,
                 const sending& asked);
  requester self(bool push) const;

  result<void> end_late_requests(std::string_view name, const call& limits);
  bool is_surely_taken(connection& on, const request& ask);
  result<entered> enter_slowly(const request& ask, const call& limits);
  result<void> release_slowly(std::string_view name, const owner_id& owner, const call& limits);
  void sweep_now_and_then();
  std::vector<owner_id> not_told_yet(std::vector<std::uint64_t> revoked);
  // Without opening the rows, where the lock goes from one client to the next (hand_over.cpp).
  result<bool> hand_over(const grant& held, const call& limits);
  // `is_queued`: it stands in the queue, whatever else is answered.
  result<std::optional<entered>> queue_again(const request& ask, const call& limits,
                                             bool& is_queued);
  std::optional<entered> look_ahead(connection& on, const request& ask);
  progress read_told(const std::optional<told_grant>& news, const ticket& place);

  void after_releases(std::string_view name, const call& limits) {
    if (releases_.any()) releases_.wait_for(place_ + std::string{name}, limits);
  }

  // While a client waits and holds nothing that must be renewed, no renewal would notice that its session ended.
  void look_after_session() noexcept;
  void plan_look_after_session(nanoseconds after) noexcept;
  // Tickets are looked at again by the engine's clock, which counts a suspended machine; threads sleep by another.
  steady_time on_steady_clock(steady_time when) const {
    if (when == steady_time::max()) return when;
    return std::chrono::steady_clock::now() + (when - clock_.now());
  }
  void read_revocations() noexcept;
  void sweep(const call& limits) noexcept;
  void forget_session(std::string_view client, const call& limits) noexcept;
  void depart() noexcept;

  // Watching (watch.cpp).
  struct sighting {
    std::uint64_t version = 0;
    nanoseconds until{};  // it may change without a word
  };
  result<sighting> look_at_lock_rows(std::string_view name, std::uint64_t seen,
                                     std::uint64_t number, const call& limits);
  result<sighting> look_at_row(watch_kind kind, std::string_view name, std::uint64_t number,
                               const call& limits);
  result<engines::watch_loop::sight> look_at(watch_kind kind, std::string_view name,
                                             std::uint64_t seen, std::uint64_t number,
                                             const call& limits);
  void stop_observing(watch_kind kind, std::string_view name, std::uint64_t number) noexcept;
  void wake_observers_of_counter(connection& on, std::string_view name);
  result<counter> change_counter(connection& on, const counter_request& ask);

  const settings how_;
  const class clock& clock_;
  engine_listener& core_;
  const std::array<std::uint64_t, 2> client_;
  capabilities caps_;
  watchdog watchdog_;
  late_requests late_requests_;
  pool plain_, transactions_;
  session session_;
  timer_thread timers_;
  waits waits_;
  std::unique_ptr<listener> listener_;  // none where waiters poll
  leftover_rows leftover_rows_;
  std::atomic<bool> expects_next_{true};  // when the last release had a waiter to hand over to
  std::atomic<std::uint64_t> last_observer_{0};
  bool has_begun_ = false;  // else there is nothing to take leave of
  std::atomic<bool> ending_{false};
  std::atomic<bool> looks_after_session_{false}, reads_revocations_{false};
  std::mutex told_guard_;
  std::vector<std::uint64_t> told_;  // revoked grants that the last heartbeat told of, sorted
  std::atomic<steady_time::rep> swept_at_{0};

  const std::string place_;  // of the store, for people and for releases_
  releases& releases_ = releases::under_way();

  // They go first, and the base's with them (see the destructor): they use everything above. Releases have
  // threads of their own, because what is asked about a name waits for its releases, and must not keep them from being
  // served.
  thread_pool renewal_thread_{1};
  thread_pool release_threads_{4};
};

capabilities describe(const session& with);
result<std::vector<finding>> check_server(connection& on, const settings& how, const session& with);

}  // namespace holdfast::engines::mysql
