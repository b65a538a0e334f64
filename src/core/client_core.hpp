// What all handles and leases of one client share: the engine, the gates by name, the driver, the metrics.
#pragma once

#include <holdfast/client.hpp>
#include <holdfast/options.hpp>

#include "core/driver.hpp"
#include "core/hold.hpp"
#include "core/metrics.hpp"
#include "core/resumer.hpp"
#include "support/fork.hpp"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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

class client_core final : public engine_listener, public std::enable_shared_from_this<client_core> {
 public:
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

  // One round trip from now.
  call bounded_call(std::stop_token stop = {}) const noexcept {
    return {clock_->recent() + options_.call_timeout, std::move(stop)};
  }
  // For a store that answers without I/O: to read the clock and to copy a stop token would be a tenth of its
  // whole pair.
  static const call unbounded;
  nanoseconds jittered(nanoseconds length) noexcept;  // 0.9 .. 1.0 of it
  std::pair<std::uint64_t, std::uint64_t> take_sequences() noexcept;

  std::shared_ptr<gate> gate_for(std::string_view name);
  std::shared_ptr<hold> new_hold(std::string name);
  void forget(hold& gone) noexcept;
  void live_holds(std::vector<std::shared_ptr<hold>>& out);

  // Checks options once, in the public layer, and fills in the ttl.
  result<acquire_options> checked(acquire_options asked);
  nanoseconds shortest_ttl() const noexcept {
    return nanoseconds{shortest_ttl_.load(std::memory_order_relaxed)};
  }

  // One renewal of one lease, out of turn.
  result<void> renew_now(hold& who, std::uint64_t generation);
  void due_at(std::int64_t ns) noexcept { driver_.due_at(ns); }
  void at(steady_time when, std::function<void()> work) { driver_.at(when, std::move(work)); }
  void clear_up(std::string name, const owner_id& owner, lock_mode mode) {
    driver_.clear_up(std::move(name), owner, mode);
  }
  // Sends a release without waiting for its answer; the observer hears of a failure, and what may be left in the store
  // is cleared up.
  void send_release(const std::string& name, const grant& held) noexcept;
  // Where coroutines go on.
  void post(std::function<void()> work);

  observer* watching() const noexcept { return options_.observer.get(); }
  // Observers may throw; nothing of ours may.
  template <class F>
  void tell(F&& hook) const noexcept {
    try {
      hook();
    } catch (...) {  // NOLINT(bugprone-empty-catch): stated in observer.hpp
    }
  }
  metric_set& numbers() noexcept { return numbers_; }
  void note_hold(nanoseconds held) noexcept { numbers_.hold.add(held); }
  void note_loss(const hold& who, const grant& gone, std::string_view why) noexcept;
  void note_renewal(const result<void>& answer, std::size_t count, nanoseconds took) noexcept;
  error note_failure(error why) noexcept;
  // The end of every acquire: what the machine found out, its settlements counted, its orphan cleared up.
  result<grant> conclude(const acquire_machine& machine, const request& ask);
  metrics snapshot();

  void on_lost(std::span<const owner_id> owners, std::string_view why) noexcept override;

 private:
  void note_ttl(nanoseconds ttl) noexcept;
  client_core(client_options options, std::string url);
  ~client_core();
  static void destroy(client_core* self) noexcept;

  client_options options_;
  std::string url_;
  const class clock* clock_;
  bool real_time_;
  std::uint64_t born_;
  std::array<std::uint64_t, 2> nonce_{};
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::int64_t> shortest_ttl_;
  std::atomic<std::uint64_t> jitter_{0};
  metric_set numbers_;

  std::mutex guard_;
  std::map<std::string, std::weak_ptr<gate>, std::less<>> gates_;
  std::vector<std::weak_ptr<hold>> holds_;
  std::size_t dead_holds_ = 0;
  std::uint64_t retired_acquired_ = 0, retired_released_ = 0;

  std::unique_ptr<engine> engine_;
  const capabilities* caps_ = nullptr;
  resumer resumer_;
  driver driver_;  // last: its thread uses everything above
};

}  // namespace holdfast::core
