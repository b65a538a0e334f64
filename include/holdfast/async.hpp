// co_await for every acquire and wait.
//
// An async<T> is lazy: nothing happens until it is awaited, and it may be awaited once. When the answer is
// there at once (an uncontended lock on the embedded store) the coroutine goes on without ever being
// suspended; otherwise it is resumed through client_options::resume, by default on a thread of the client's
// that also serves its other coroutines: do not block there for long.
//
// Cancelling: give a stop_token in the options, or destroy the suspended coroutine. Either way no
// trace is left in the store.
#pragma once

#include <holdfast/result.hpp>

#include <coroutine>
#include <memory>
#include <optional>
#include <utility>

namespace holdfast {

namespace detail {

template <class T>
struct async_state {
  virtual ~async_state() = default;
  // True: `outcome` is set already. False: `who` will be resumed once it is.
  virtual bool start(std::coroutine_handle<> who) = 0;
  // The coroutine is gone: cancel, and give back whatever may still arrive.
  virtual void abandon() noexcept = 0;
  std::optional<result<T>> outcome;
};

}  // namespace detail

template <class T>
class [[nodiscard]] async {
 public:
  explicit async(std::shared_ptr<detail::async_state<T>> state) : state_(std::move(state)) {}
  async(async&&) noexcept = default;
  async& operator=(async&&) = delete;
  ~async() {
    if (pending_) state_->abandon();
  }

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

 private:
  std::shared_ptr<detail::async_state<T>> state_;
  bool pending_ = false;
};

}  // namespace holdfast
