// The layout redisson: locks, semaphores and latches that are shared with Java programs (redisson_scripts.hpp).
//
// A lock is an RLock taken through RFencedLock's script, so it works beside both. Its owner is "UUID:SEQUENCE": the
// client's id in the usual form, and the running number where Redisson has its thread. A waiter that finds it taken
// listens to the lock's channel, asks again once it is heard, and then waits for "0", at most for what is left of the
// holder's ttl.
//
// Permits are those of RPermitExpirableSemaphore, which end with their ttl; ?semaphore=plain are those of RSemaphore,
// which know no owner: what this client holds is known to it alone, and others see no more than how many are free, and
// of how many if a client of ours has made the semaphore. Counters are RCountDownLatch. A name is one key
// in the store, so it is a lock, a semaphore or a counter, and never two of them. A counter's version is its value:
// it comes back when the same value does.
#pragma once

#include "engines/redis/compat_layout.hpp"
#include "engines/redis/subscriptions.hpp"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace holdfast::engines::redis {

class redisson final : public compat_layout {
 public:
  static result<std::unique_ptr<cluster_part>> open(const settings& how,
                                                    const engine_config& config);
  ~redisson() override;

  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;

 private:
  redisson(const settings& how, const engine_config& config);

  operation<void> do_release(const grant& held, invocation how) override;
  operation<entered> do_settle(const request& ask, invocation how) override;
  operation<counter> do_count(const counter_request& ask, invocation how) override;
  operation<std::vector<counter_info>> do_list_counters(std::string_view prefix, std::size_t limit,
                                                        invocation how) override;

  operation<std::vector<std::string>> counted_names(std::string_view prefix, invocation how);
  operation<std::optional<counter_info>> look_at_count(const std::string& name, invocation how);

  enum class topic : std::uint8_t { lock, semaphore, latch };
  // "prefix:{NAME}" and "{NAME}:suffix", or without braces where NAME has one.
  std::string before(std::string_view prefix, std::string_view name) const;
  static constexpr std::string_view count_suffix = "holdfast_count";
  std::string count_mark(std::string_view name) const { return after(name, count_suffix); }
  std::string token_key(std::string_view name) const { return before("redisson_lock_token", name); }
  std::string channel_of(topic what, std::string_view name) const;
  std::string lock_owner(const owner_id& owner) const;
  static std::string permit_owner(const owner_id& owner);  // 14 bytes
  bool is_plain(lock_mode mode) const {
    return mode == lock_mode::permits && how_.plain_semaphores;
  }

  result<void> check(const request& ask) const override;
  command enter_command(const request& ask) const override;
  command settle_command(const request& ask) const override;
  command release_command(const grant& held) const override;
  std::vector<const script*> release_scripts() const override;
  bool names_owner(const grant& held) const override { return !is_plain(held.mode); }
  std::optional<command> leave_command(const ticket& place) const override;
  command renew_command(std::span<const renewal> batch) const override;
  command inspect_command(std::string_view name) const override;
  command revoke_command(std::string_view name) const override;
  command count_command(const counter_request& ask) const;
  command give_back(lock_mode mode, std::string_view name, const owner_id& owner,
                    std::uint64_t weight) const;
  lock_info read_info(const resp::value& got, std::string_view name) const override;
  static void read_lock(const std::vector<resp::value>& pairs, fencing_token last, nanoseconds left,
                        lock_info& into);
  void read_permits(const std::vector<resp::value>& pairs, fencing_token last,
                    lock_info& into) const;
  result<counter> read_count(const result<answer>& got, std::string_view name) const;

  // A ticket's handle: what was heard, and how many permits were asked for (0: a lock), in this order from above.
  static constexpr unsigned weight_bits = 17;
  static std::uint64_t weight_in(const ticket& place);
  std::uint64_t messages_before(const request& ask) const override;
  nanoseconds patience(std::optional<nanoseconds> left) const override;
  std::uint64_t messages_so_far(watch_kind kind, std::string_view name) const override;
  void look(watch_kind kind, std::string_view name, const call& limits, on_version done) override;
  void wait_for_change(watch_kind kind, std::string_view name, std::uint64_t heard,
                       const call& limits, on_wait_over done) override;

  void on_push(std::string_view frame) noexcept override { subscriptions_->on_push(frame); }
  void on_down(const error&) noexcept override { subscriptions_->on_down(); }

  // Of RSemaphore, whose holders only we know.
  void note_granted(const request& ask) override;
  void note_released(const grant& held, const result<void>& how) override;
  operation<void> refuse_release(const grant& held) const;
  operation<entered> settle_plain(const request& ask) const;
  bool has_plain(const owner_id& owner) const;

  const std::array<std::uint64_t, 2> client_;
  const std::string uuid_;
  std::atomic<std::uint64_t> last_watcher_{0};
  mutable std::mutex plain_guard_;
  std::unordered_map<std::uint64_t, std::uint64_t> plain_held_;  // sequence to number of permits
  std::unique_ptr<subscriptions> subscriptions_;
};

}  // namespace holdfast::engines::redis
