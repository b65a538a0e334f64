// A verb of the engine, written once as a coroutine and driven in two ways: run() on the calling thread, which blocks
// in every call to the cluster and never suspends; or start(), which blocks nowhere and completes elsewhere.
//
//   verb<void> etcd_engine::release_verb(grant held, way how) {
//     const auto got = co_await cluster_->ask(method::txn, body, how);
//     ...
//   }
//   result<void> release(...) { return release_verb(held, {limits, true}).run(); }
//   void start_release(..., done) { release_verb(held, {limits, false}).start(done); }
//
// gcc 12 destroys the members of aggregate temporaries twice when they stand in a co_await expression (decision 0007):
// what is passed in there has a name.
#pragma once

#include <holdfast/engine.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace holdfast::engines::etcd {

// How a verb is driven, and how long it may take. The limits stay alive until the verb is done.
struct way {
  const call& limits;
  bool blocks = false;
};

template <class T>
class [[nodiscard]] verb {
 public:
  struct promise_type;
  using handle = std::coroutine_handle<promise_type>;

  struct promise_type {
    std::optional<result<T>> outcome{};
    completion<T>* done = nullptr;
    std::coroutine_handle<> parent{};

    // The last thing that happens in a verb. The frame may be gone when others hear of the outcome.
    struct ending {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(handle self) const noexcept {
        auto& promise = self.promise();
        if (promise.parent) return promise.parent;
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

    verb get_return_object() noexcept { return verb{handle::from_promise(*this)}; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    ending final_suspend() const noexcept { return {}; }
    void return_value(result<T> value) { outcome.emplace(std::move(value)); }
    void unhandled_exception() const noexcept {
      std::terminate();
    }  // no memory: nothing else is thrown
  };

  verb(verb&& from) noexcept : self_(std::exchange(from.self_, {})) {}
  verb(const verb&) = delete;
  verb& operator=(const verb&) = delete;
  ~verb() {
    if (self_) self_.destroy();
  }

  // REQUIRES: the verb was made with way::blocks.
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

  // A verb as a step of another one.
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) noexcept {
    self_.promise().parent = parent;
    return self_;
  }
  result<T> await_resume() { return std::move(*self_.promise().outcome); }

 private:
  explicit verb(handle self) noexcept : self_(self) {}
  handle self_;
};

}  // namespace holdfast::engines::etcd
