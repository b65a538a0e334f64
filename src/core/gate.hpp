// The gate of one lock name in one client: its exclusive hold, and the local waiters that want it next.
//
// Threads and coroutines of one process that wait for one name are one contender remotely: the first of
// them (the leader) asks the store, the others queue here, first come first served within a priority. A
// release hands the grant to the next of them without asking the store, a bounded number of times while
// others wait elsewhere (cohort hand-off).
#pragma once

#include "core/hold.hpp"

#include <holdfast/options.hpp>

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

namespace holdfast::core {

class gate final : public hold {
 public:
  gate(std::shared_ptr<client_core> client, std::string lock_name);

  // A place in the local queue.
  class waiter {
   public:
    virtual ~waiter() = default;
    enum class news : std::uint32_t { handed = 1, lead = 2, withdrawn = 3 };
    // You hold the lock (handed), or it is your turn to ask the store (lead), as `generation`. Called once,
    // without locks, on the thread that made room.
    virtual void served(news what) noexcept = 0;

    std::uint64_t generation = 0;
    fencing_token token{};  // when handed
    int priority = 0;
    nanoseconds ttl{};
    nanoseconds max_hold{};
    bool own_token = false;
    std::string_view label;

   private:
    friend class gate;
    std::list<waiter*>::iterator place{};
    bool queued = false;
    news to_tell{};           // while it is to be served
    waiter* after = nullptr;  // the one to be served then
  };

  // Options are checked ones, here and below: ttl is set.
  result<tenure> acquire(const acquire_options& options);

  enum class begun { lead, queued, busy };
  // One step up to the gate: the leader goes on as `generation`, the queued will be served.
  begun begin(std::uint64_t& generation, waiter* asking);
  // Out of the local queue. False: it is being served at this moment, the news is on its way.
  bool withdraw(waiter& leaving) noexcept;
  // The leader did not get it: next, please.
  void lead_failed(std::uint64_t generation) noexcept;
  // The leader got it.
  // `since` is when the wait began, or unset for an uncontended acquire that is not timed.
  void won(const grant& arrived, const acquire_options& options, steady_time since) noexcept;
  void note_handed(fencing_token token, steady_time since) noexcept;

  // From now on requests say that this name has readers, too (request::has_readers).
  void note_readers() noexcept { has_readers_.store(true, std::memory_order_relaxed); }
  // The leader's request, valid until it has won or failed: one object, of which little changes.
  const request& make_request(const acquire_options& options);

  // While user code runs on a thread that serves waiters (a coroutine that is resumed in place): what it makes room for
  // is served at once, for it may wait for just that.
  class user_code {
   public:
    user_code() noexcept : was_serving_(std::exchange(is_serving(), false)) {}
    ~user_code() { is_serving() = was_serving_; }
    user_code(const user_code&) = delete;
    user_code& operator=(const user_code&) = delete;

   private:
    const bool was_serving_;
  };

 private:
  static bool& is_serving() noexcept;
  result<tenure> lead(const acquire_options& options, std::uint64_t generation, steady_time since);
  result<tenure> ask_store(const acquire_options& options, std::uint64_t generation,
                           steady_time since);
  result<tenure> lead_slowly(const acquire_options& options, std::uint64_t generation,
                             steady_time since, const request& ask,
                             std::optional<result<entered>> first);
  result<tenure> queue_up(const acquire_options& options);
  bool quick_begin(std::uint64_t& generation) noexcept;
  bool in_time(const grant& arrived) const noexcept;
  bool hand_off(std::unique_lock<std::mutex>& locked) override;
  void pass_on(std::unique_lock<std::mutex>& locked) noexcept override;
  bool may_hand_off(const waiter& next, steady_time now) const noexcept;
  waiter* pop() noexcept;
  static void serve(waiter& next, waiter::news what) noexcept;

  std::atomic<std::uint64_t> memo_{0};  // the engine's
  std::atomic<bool> has_readers_{false};
  request ask_;               // (owner)
  std::list<waiter*> queue_;  // under guard; non-empty <=> the word's waiters flag
  unsigned handoffs_ = 0;     // (owner) since the store granted it
  steady_time granted_at_{};  // (owner)
  std::string label_;         // (owner) as the store shows it
};

// The handle of a client that a handle of one of its holds is.
inline std::shared_ptr<client_core> handle_of(const std::shared_ptr<hold>& at) {
  return {at, at->core.get()};
}

}  // namespace holdfast::core
