// A coroutine that a test starts by hand and may destroy while it is suspended.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace holdfast::testing {

class manual_task {
 public:
  struct promise_type {
    manual_task get_return_object() {
      return manual_task{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };

  explicit manual_task(std::coroutine_handle<promise_type> self) : self_(self) {}
  manual_task(manual_task&& other) noexcept : self_(std::exchange(other.self_, nullptr)) {}
  manual_task& operator=(manual_task&&) = delete;
  ~manual_task() { destroy(); }

  void start() { self_.resume(); }
  // REQUIRES: it is suspended, and no thread is about to resume it.
  void destroy() {
    if (self_) std::exchange(self_, nullptr).destroy();
  }

 private:
  std::coroutine_handle<promise_type> self_;
};

}  // namespace holdfast::testing
