// task<T>: the smallest lazy coroutine type that can await our acquires, for programs that have none of their own. Any
// other coroutine type will do as well.
//
//   holdfast::task<int> sell(holdfast::mutex& stock) {
//     auto lease = co_await stock.async_acquire();
//     co_return lease ? 1 : 0;
//   }
//   int sold = holdfast::sync_wait(sell(stock));
//
// A task begins when it is awaited (or given to sync_wait or spawn), on that thread, and goes on wherever what it
// awaits resumes it. It has no executor and no cancellation of its own: pass a stop_token to what it awaits. Arguments
// that a coroutine takes by reference must outlive it.
#pragma once

#include <holdfast/language.hpp>

#include <condition_variable>
#include <coroutine>
#include <exception>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace holdfast {

template <class T = void>
class task;

namespace detail {

// What all promises share: where to go on when the task ends, and what it threw.
struct task_promise_base {
  std::coroutine_handle<> continuation = std::noop_coroutine();
  std::exception_ptr failure;

  struct final_awaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      return self.promise().continuation;  // symmetric transfer: no stack growth in long chains
    }
    void await_resume() const noexcept {}
  };
  std::suspend_always initial_suspend() const noexcept { return {}; }
  final_awaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { failure = std::current_exception(); }
};

template <class T>
struct task_promise : task_promise_base {
  std::optional<T> value;
  task<T> get_return_object() noexcept;
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() { return std::move(*value); }
};

template <>
struct task_promise<void> : task_promise_base {
  task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace detail

// Owns its coroutine. Move-only; not thread-safe. One that is never awaited never runs, and is destroyed with its
// arguments. Destroying a task that is suspended destroys what it awaits, too (see async.hpp for when that is safe).
template <class T>
class [[nodiscard]] task {
 public:
  using promise_type = detail::task_promise<T>;
  explicit task(std::coroutine_handle<promise_type> self) noexcept : self_(self) {}
  task(task&& other) noexcept : self_(std::exchange(other.self_, nullptr)) {}
  task& operator=(task&&) = delete;
  ~task() {
    if (self_) self_.destroy();
  }

  // Starts it; the awaiting coroutine goes on when it ends, on the thread on which it ends, with its value or with what
  // it threw. REQUIRES: awaited once, not moved from.
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
    self_.promise().continuation = awaiting;
    return self_;
  }
  T await_resume() {
    if (self_.promise().failure) std::rethrow_exception(self_.promise().failure);
    return self_.promise().take();
  }

 private:
  std::coroutine_handle<promise_type> self_;
};

namespace detail {

template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
  return task<T>{std::coroutine_handle<task_promise<T>>::from_promise(*this)};
}
inline task<void> task_promise<void>::get_return_object() noexcept {
  return task<void>{std::coroutine_handle<task_promise<void>>::from_promise(*this)};
}

// Runs at once and destroys itself at the end.
struct fire_and_forget {
  struct promise_type {
    fire_and_forget get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

// Lets one thread wait for one event of another.
struct arrival {
  std::mutex guard;
  std::condition_variable changed;
  bool here = false;
  void set() {
    // Notified under the lock: the waiter may destroy us as soon as it can see `here`.
    std::lock_guard lock{guard};
    here = true;
    changed.notify_one();
  }
  void wait() {
    std::unique_lock lock{guard};
    changed.wait(lock, [this] { return here; });
  }
};

}  // namespace detail

// Starts the task on this thread and blocks until it ends, wherever that is, without a time limit. Gives its value, or
// throws what it threw. REQUIRES: this thread is not needed to resume it: in a coroutine that the client resumed it
// would wait for itself; use co_await there.
template <class T>
T sync_wait(task<T> work) {
  detail::arrival end;
  std::exception_ptr failure;
  using stored = std::conditional_t<std::is_void_v<T>, std::monostate, std::optional<T>>;
  stored value{};
  [](task<T>& job, stored& out, std::exception_ptr& failed,
     detail::arrival& done) -> detail::fire_and_forget {
    try {
      if constexpr (std::is_void_v<T>) {
        co_await job;
      } else {
        out.emplace(co_await job);
      }
    } catch (...) {
      failed = std::current_exception();
    }
    done.set();
  }(work, value, failure, end);
  end.wait();
  if (failure) std::rethrow_exception(failure);
  if constexpr (!std::is_void_v<T>) return std::move(*value);
}

// Starts the task on this thread and returns when it is first suspended, or has ended. No thread waits for it: what it
// refers to must live until it has ended. What it throws ends the program, as with a thread.
inline void spawn(task<> work) {
  [](task<> job) -> detail::fire_and_forget { co_await job; }(std::move(work));
}

}  // namespace holdfast
