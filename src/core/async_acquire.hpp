// The acquire machine driven by completions, for coroutines.
//
// No thread is blocked, and no continuation runs on the thread of another user: the one that makes room
// only moves the machine on; the coroutine itself is resumed through client_core::post.
#pragma once

#include "core/blocking.hpp"
#include "core/gate.hpp"

#include <holdfast/async.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

namespace holdfast::core {

// The coroutine's side of any operation: suspended once, resumed at most once, or abandoned.
template <class T>
class async_operation : public detail::async_state<T>,
                        public std::enable_shared_from_this<async_operation<T>> {
 public:
  // `client` is a handle: whatever else of the client an operation keeps must not outlive it.
  explicit async_operation(std::shared_ptr<client_core> client) : core_(std::move(client)) {}

  bool start(std::coroutine_handle<> awaiting) final {
    awaiting_ = awaiting;
    self_ = this->shared_from_this();
    if (core_->usable_here()) {
      begin();
    } else {
      finish(core_->forked_error());
    }
    auto expected = phase::running;
    if (phase_.compare_exchange_strong(expected, phase::suspended)) return false;
    resuming();
    return true;
  }
  void abandon() noexcept final {
    // Finished, and never to be resumed: from here on only this thread touches the outcome.
    if (phase_.exchange(phase::abandoned) == phase::finished) dropped();
    cancel_.request_stop();
  }
  void cancel() noexcept final { cancel_.request_stop(); }
  bool is_abandoned() const noexcept { return phase_.load() == phase::abandoned; }

 protected:
  virtual void begin() = 0;
  // On the thread on which the coroutine goes on, just before it does.
  virtual void resuming() noexcept {}
  // The outcome is there, and no coroutine waits for it any more.
  virtual void dropped() noexcept { this->outcome.reset(); }
  // The last thing an operation does: *this may be gone afterwards.
  void finish(result<T> answer) {
    const auto self = std::move(self_);
    this->outcome.emplace(std::move(answer));
    auto before = phase_.load();
    while (before != phase::abandoned && !phase_.compare_exchange_weak(before, phase::finished)) {
    }
    if (before != phase::suspended) return;
    core_->post([self]() mutable {
      // Perhaps on a thread of the user's. This operation, which may be the last that keeps the client, goes under the
      // mark as well.
      const background_thread mark;
      const auto me = std::move(self);
      me->go_on();
    });
  }
  void cancel_with(const std::stop_token& users) {
    if (users.stop_possible()) users_stop_.emplace(users, forward{&cancel_});
  }
  std::stop_token stop() const { return cancel_.get_token(); }
  client_core& core() const noexcept { return *core_; }
  const std::shared_ptr<client_core>& shared_core() const noexcept { return core_; }

 private:
  enum class phase { running, suspended, finished, resumed, abandoned };
  struct forward {
    std::stop_source* to;
    void operator()() const noexcept { to->request_stop(); }
  };
  void go_on() {
    auto expected = phase::finished;
    if (!phase_.compare_exchange_strong(expected, phase::resumed)) return;
    const background_thread
        mark;  // perhaps on a thread of the user's; *this keeps the client until it returns
    resuming();
    awaiting_.resume();
  }

  const std::shared_ptr<client_core> core_;
  std::coroutine_handle<> awaiting_;
  std::shared_ptr<async_operation> self_;  // until finished: the store will call back
  std::atomic<phase> phase_{phase::running};
  std::stop_source cancel_;
  std::optional<std::stop_callback<forward>> users_stop_;
};

// Any operation whose middle is the acquire machine.
template <class T>
class async_machine : public async_operation<T>,
                      private completion<entered>,
                      private completion<progress>,
                      private completion<void> {
 public:
  using async_operation<T>::async_operation;

 protected:
  // Checks and takes the options, and looks at the clock; or finishes with what is wrong with them.
  bool take_options(acquire_options asked);
  // Asks the store, then calls concluded.
  void ask_store(const request& ask, steady_time since, nanoseconds wait);
  virtual void concluded(result<grant> answer, const acquire_machine& machine) = 0;
  virtual owner_id fresh_owner() = 0;
  acquire_options options_;
  steady_time since_{};

 private:
  using step = acquire_machine::step;
  void complete(result<entered> answer) noexcept override;
  void complete(result<progress> answer) noexcept override;
  void complete(result<void> answer) noexcept override;
  void run(step next);
  void issue(step what);
  void advance(step next);

  enum class flow { issued, answered, parked };
  std::optional<acquire_machine> machine_;
  std::atomic<flow> flow_{flow::issued};
  step current_ = step::enter;
  step next_ = step::enter;
  call limits_;
};

extern template class async_machine<lease>;
extern template class async_machine<void>;

// Called on success with the new lease's generation, on the thread on which the coroutine goes on.
using acquired_hook = std::function<void(std::uint64_t generation)>;

async<lease> async_exclusive(std::shared_ptr<gate> at, acquire_options asked,
                             acquired_hook hook = {});
async<lease> async_share(std::shared_ptr<client_core> core, std::string name, const share& kind,
                         acquire_options asked);
// misconfigured unless `held` is a lease of `name`.
async<void> async_upgrade(std::shared_ptr<client_core> core, lease& held, std::string name,
                          acquire_options asked);
// An answer that is there already.
async<lease> ready_lease(std::shared_ptr<client_core> core, result<lease> answer);

}  // namespace holdfast::core
