// co_await for every acquire and wait.
//
//   const holdfast::acquire_options options{.wait = 3s};           // named: see options.hpp
//   auto lease = co_await stock.async_acquire(options);            // result<lease>
//   if (!lease) co_return lease.error();
//
// An async<T> is lazy: nothing is asked until it is awaited, and it may be awaited once, from any coroutine type. It
// keeps its client and copies of its arguments, except leases passed by reference. To await it blocks no thread. When
// the answer is there at once (an uncontended lock on the embedded store) the coroutine goes on without ever being
// suspended, on its own thread; otherwise it is resumed through client_options::resume, by default on a thread of the
// client's that also serves its other coroutines: do not block there for long. It costs other coroutines time, but no
// lease its renewal.
//
// The failure is a value, as with the blocking function of the same name.
//
// Cancelling: give a stop_token in the options, and the coroutine is resumed with cancelled; or destroy the suspended
// coroutine. Either way no trace is left in the store: what is on its way is taken back in the background, and a grant
// that arrives too late is given back. Destroy it only where it cannot be resumed at that moment: on the thread that
// resumes it, or with an executor of yours that excludes the two. A coroutine that is destroyed on one thread while it
// is being resumed on another is a race, as with any coroutine.
//
// An operation that is on its way keeps the client alive. In a forked child it ends at once as misconfigured.
#pragma once

#include <holdfast/result.hpp>

#include <coroutine>
#include <memory>
#include <optional>
#include <utility>

namespace holdfast {

namespace detail {

// The operation behind an async<T>, implemented by core.
template <class T>
struct async_state {
  virtual ~async_state() = default;
  // Begins. Called once. True: `outcome` is set already. False: `who` will be resumed once it is, perhaps
  // before this returns.
  virtual bool start(std::coroutine_handle<> who) = 0;
  // The coroutine is gone and will not be resumed: cancel, and give back whatever may still arrive. Does not wait.
  virtual void abandon() noexcept = 0;
  // Asks it to end early, from any thread: the coroutine goes on with cancelled, or with what it came to meanwhile.
  virtual void cancel() noexcept = 0;
  std::optional<result<T>> outcome;
};

}  // namespace detail

// What the async_ functions return: co_await it, at once or later. Not thread-safe; it may move until it is awaited.
template <class T>
class [[nodiscard]] async {
 public:
  // For our own functions.
  explicit async(std::shared_ptr<detail::async_state<T>> state) : state_(std::move(state)) {}
  async(async&&) noexcept = default;
  async& operator=(async&&) = delete;
  // Of one that was never awaited: nothing has happened. While its coroutine is suspended in it: abandons the wait.
  ~async() {
    if (pending_) state_->abandon();
  }

  // For co_await, not to be called by hand. REQUIRES: not awaited before, not moved from.
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> who) {
    // Kept alive beyond *this: the coroutine may be resumed, and end, on another thread before start returns.
    auto state = state_;
    pending_ = true;
    return !state->start(who);
  }
  result<T> await_resume() {
    pending_ = false;
    return std::move(*state_->outcome);
  }

  // For adapters to other coroutine libraries (asio.hpp).
  const std::shared_ptr<detail::async_state<T>>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<detail::async_state<T>> state_;
  bool pending_ = false;
};

}  // namespace holdfast
