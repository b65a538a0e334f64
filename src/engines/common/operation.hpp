// An operation of an engine, written once as a coroutine and driven in two ways: run() on the calling thread, which
// blocks in every call to the store and never suspends; or start(), which blocks nowhere and completes elsewhere.
//
//   operation<void> etcd_engine::do_release(const grant& held, invocation how) {
//     const auto got = co_await cluster_->ask(question, how);
//     ...
//   }
//
// remote_engine.hpp makes both faces of every verb of it. What is awaited inside is another operation, or something
// that asks `how.blocks` in its await_ready().
//
// gcc 12 destroys the members of aggregate temporaries twice when they stand in a co_await expression (decision 0007):
// what is passed in there has a name.
#pragma once

#include <holdfast/engine.hpp>

#include <atomic>
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace holdfast::engines {

// How an operation is driven, and how long it may take. The limits stay alive until it is done.
struct invocation {
  const call& limits;
  bool blocks = false;
};

template <class T>
class [[nodiscard]] operation {
 public:
  struct promise_type;
  using handle = std::coroutine_handle<promise_type>;

  struct promise_type {
    std::optional<result<T>> outcome{};
    completion<T>* done = nullptr;
    std::coroutine_handle<> parent{};
    std::atomic<bool> is_met{
        false};  // the end of this one, or the parent's suspension, whichever came first

    // The last thing that happens in an operation. The frame may be gone when others hear of the outcome.
    struct ending {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(handle self) const noexcept {
        auto& promise = self.promise();
        if (promise.parent) {
          // Before the parent has suspended it goes on by itself, see below.
          if (promise.is_met.exchange(true)) return promise.parent;
          return std::noop_coroutine();
        }
        if (promise.done != nullptr) {
          auto said = std::move(*promise.outcome);
          auto& to = *promise.done;
          self.destroy();
          to.complete(std::move(said));
        }
        return std::noop_coroutine();
      }
      void await_resume() const noexcept {}
    };

    operation get_return_object() noexcept { return operation{handle::from_promise(*this)}; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    ending final_suspend() const noexcept { return {}; }
    void return_value(result<T> value) { outcome.emplace(std::move(value)); }
    void unhandled_exception() const noexcept {
      std::terminate();
    }  // no memory: nothing else is thrown
  };

  operation(operation&& from) noexcept : self_(std::exchange(from.self_, {})) {}
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  ~operation() {
    if (self_) self_.destroy();
  }

  // REQUIRES: it was made with invocation::blocks.
  result<T> run() && {
    self_.resume();
    return std::move(*self_.promise().outcome);
  }
  // REQUIRES: it was made without.
  void start(completion<T>& done) && noexcept {
    const auto self = std::exchange(self_, {});
    self.promise().done = &done;
    self.resume();
  }

  // An operation as a step of another one.
  bool await_ready() const noexcept { return false; }
  // One that is done at once returns here, and the parent goes on without having suspended: a loop over operations
  // needs no more stack than one of them, whether or not the compiler makes tail calls.
  bool await_suspend(std::coroutine_handle<> parent) noexcept {
    auto& promise = self_.promise();
    promise.parent = parent;
    self_.resume();
    return !promise.is_met.exchange(true);
  }
  result<T> await_resume() { return std::move(*self_.promise().outcome); }

 private:
  explicit operation(handle self) noexcept : self_(self) {}
  handle self_;
};

}  // namespace holdfast::engines
