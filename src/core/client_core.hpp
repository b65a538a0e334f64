// What all handles and leases of one client share: the engine, the gates by name, the driver, the metrics.
#pragma once

#include <holdfast/client.hpp>
#include <holdfast/options.hpp>

#include "core/driver.hpp"
#include "core/early_losses.hpp"
#include "core/hold.hpp"
#include "core/metrics.hpp"
#include "core/resumer.hpp"
#include "core/retry_thread.hpp"
#include "support/fork.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::core {

class acquire_machine;

// Marks a thread of ours, or a piece of code that an engine's thread runs for us: the last reference to
// a client may be dropped there, but the client must not be taken apart on a thread it would have to join.
class background_thread {
 public:
  background_thread() noexcept { ++depth(); }
  ~background_thread() { --depth(); }
  background_thread(const background_thread&) = delete;
  background_thread& operator=(const background_thread&) = delete;
  static bool here() noexcept { return depth() > 0; }

 private:
  static int& depth() noexcept;
};

// Users' objects and background threads share ownership of a client, through different pointers. What users hold
// (client, mutex, lease ...) are *handles*: the thread that drops the last one waits until the client has ended, with
// its driver, its hooks and its session, so that nothing of it runs when that thread goes on (or ends the program). The
// pointers of background threads are short-lived and count for nothing there.
class client_core final : public engine_listener, public std::enable_shared_from_this<client_core> {
 public:
  // Gives a handle.
  static result<std::shared_ptr<client_core>> open(const client::engine_factory& make,
                                                   std::string_view url, client_options options);

  engine& store() const noexcept { return *engine_; }
  const capabilities& caps() const noexcept { return *caps_; }
  const class clock& clock() const noexcept { return *clock_; }
  bool real_time() const noexcept { return real_time_; }
  const client_options& options() const noexcept { return options_; }
  const std::string& url() const noexcept { return url_; }
  const std::array<std::uint64_t, 2>& nonce() const noexcept { return nonce_; }

  bool usable_here() const noexcept { return support::fork_generation() == born_; }
  error forked_error() const;
  error nothing_outlives() const;

  // One round trip from now.
  call bounded_call(std::stop_token stop = {}) const noexcept {
    return {clock_->local().recent() + options_.call_timeout, std::move(stop)};
  }
  // The same, and not much longer than the caller means to wait: until `deadline`, an instant of clock().
  call call_until(steady_time deadline, std::stop_token stop) const noexcept;
  // An instant of clock() as one of std::chrono::steady_clock, on which threads and engines sleep.
  steady_time on_steady_clock(steady_time when) const noexcept {
    if (when == steady_time::max() || &clock_->local() == clock_) return when;
    return when - (clock_->now() - clock_->local().now());
  }
  // For a store that answers without I/O: to read the clock and to copy a stop token would be a tenth of its
  // whole pair.
  static const call unbounded;
  nanoseconds jittered(nanoseconds length) noexcept;  // 0.9 .. 1.0 of it
  std::pair<std::uint64_t, std::uint64_t> take_sequences() noexcept;
  // An owner of the predecessor's is adopted once: two leases on one grant would be two holders.
  enum class adoption : std::uint8_t { begun, under_way, ours };
  adoption begin_adoption(const owner_id& owner);
  void note_adopted(const owner_id& owner) noexcept;
  void end_adoption(const owner_id& owner) noexcept;  // it failed, or was left behind

  // Handles.
  std::shared_ptr<gate> gate_for(std::string_view name);
  std::shared_ptr<hold> new_hold(std::string name);
  void forget(hold& gone) noexcept;
  void live_holds(std::vector<std::shared_ptr<hold>>& out);

  // Checks options once, in the public layer, and fills in the ttl.
  result<acquire_options> checked(acquire_options asked);
  void note_ttl(nanoseconds ttl) noexcept;
  nanoseconds shortest_ttl() const noexcept {
    return nanoseconds{shortest_ttl_.load(std::memory_order_relaxed)};
  }

  // One renewal of one lease, out of turn.
  result<void> renew_now(hold& held, std::uint64_t generation);
  // What the answer to a question about this one lease means for it.
  result<void> conclude_renewal(hold& held, std::uint64_t generation, renewal asked,
                                const result<session_proof>& answer, steady_time since);
  void due_at(std::int64_t ns) noexcept { driver_.due_at(ns); }
  driver::timer at(steady_time when, std::function<void()> work) {
    return driver_.at(when, std::move(work));
  }
  void cancel(const driver::timer& planned) noexcept { driver_.cancel(planned); }
  std::size_t timers() { return driver_.timers(); }  // for tests
  void clear_up(std::string name, const owner_id& owner, lock_mode mode) {
    driver_.clear_up(std::move(name), owner, mode);
  }
  // Sends a release without waiting for its answer; the observer hears of a failure, and what may be left in the store
  // is cleared up.
  // `loss` is fired if the store had let go already; `answered` is called when the answer is there, or will not come.
  void send_release(const std::string& name, const grant& held,
                    std::unique_ptr<std::stop_source> loss,
                    std::function<void()> answered) noexcept;
  // Repeats `what` in the background until it is certain (retry_thread.hpp).
  void retry_until_certain(retry_thread::attempt what) { retries_.add(std::move(what)); }
  // Where coroutines go on.
  void post(std::function<void()> work);

  bool watching() const noexcept { return options_.observer != nullptr; }
  bool watching_pairs() const noexcept { return watching_pairs_; }
  // Calls hook(observer) on the thread for that, soon. Ask watching() first: what the hook captures costs something.
  template <class F>
  void tell(F hook) noexcept {
    if (!watching()) return;
    announce(hooks_, [to = options_.observer, hook = std::move(hook)] {
      try {  // observers may throw; nothing of ours may
        hook(*to);
      } catch (...) {  // NOLINT(bugprone-empty-catch): stated in observer.hpp
      }
    });
  }
  void tell_release_failed(const std::string& name, const error& why) noexcept;
  // Fires the token of loss if there is one, counts, and tells the observer.
  void announce_loss(std::unique_ptr<std::stop_source> fired, const std::string& name,
                     fencing_token token, std::string_view why) noexcept;
  // The sentence for a lease whose validity ran out, naming the setting that decided.
  const std::string& why_it_ended() const noexcept { return why_it_ended_; }
  metric_set& numbers() noexcept { return numbers_; }
  void note_hold(nanoseconds held) noexcept { numbers_.hold.add(held); }
  void note_renewed(std::size_t count, nanoseconds took) noexcept;
  void note_renewal_failed(const error& why, nanoseconds took) noexcept;
  error could_not_say(const std::string& name) const;
  error note_failure(error why) noexcept;
  // The end of every acquire: what the machine found out, its settlements counted, its orphan cleared up.
  result<grant> conclude(const acquire_machine& machine);
  metrics snapshot();

  void on_lost(std::span<const owner_id> owners, std::string_view why) noexcept override;
  void on_session_lost(std::uint64_t number, std::string_view why) noexcept override;
  early_losses& losses_told_early() noexcept { return early_losses_; }
  // The latest proof of the session, for grants whose own is older: their answer was long on its way.
  // False: it says nothing that was not known.
  bool note_proof(const session_proof& proof) noexcept;
  void freshen(session_proof& of_grant) const noexcept;

 private:
  std::vector<owner_id> lose_those(std::span<const owner_id> sorted, std::string_view why);
  // The end of a client, for the thread that waits for it.
  struct ending {
    std::mutex guard;
    std::condition_variable changed;
    bool over = false;
  };
  template <class T>
  class handle;
  template <class T>
  std::shared_ptr<T> make_handle(std::shared_ptr<T> inner);

  void announce(resumer& where, std::function<void()> user_code) noexcept;
  client_core(client_options options, std::string url);
  ~client_core();
  static void destroy(client_core* self) noexcept;

  client_options options_;
  const bool watching_pairs_ = options_.observer != nullptr && options_.observer->hears_pairs();
  std::string url_;
  const class clock* clock_;
  bool real_time_;
  std::uint64_t born_;
  std::array<std::uint64_t, 2> nonce_{};
  std::uint64_t first_sequence_ = 0;  // smaller than all of its own
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::int64_t> shortest_ttl_;
  std::atomic<std::uint64_t> jitter_{0};
  metric_set numbers_;

  std::mutex guard_;
  std::map<std::string, std::weak_ptr<gate>, std::less<>> gates_;
  std::vector<std::weak_ptr<hold>> holds_;
  std::size_t dead_holds_ = 0;
  std::unordered_map<std::uint64_t, bool> adopted_;  // numbers of owners; false: it is under way
  std::uint64_t retired_acquired_ = 0, retired_released_ = 0;
  early_losses early_losses_;
  mutable std::mutex proof_guard_;
  session_proof latest_proof_;

  std::unique_ptr<engine> engine_;
  const capabilities* caps_ = nullptr;
  std::string why_it_ended_;
  std::atomic<std::size_t> handles_{0};
  const std::shared_ptr<ending> ending_ = std::make_shared<ending>();
  resumer resumer_;
  resumer losses_;  // fires the tokens of loss: no hook may delay the news that a lease is over
  resumer hooks_;   // calls the observer
  retry_thread retries_;
  driver driver_;  // last: its thread uses everything above
};

}  // namespace holdfast::core
