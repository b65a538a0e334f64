// Our acquires and waits in Boost.Asio programs: from boost::asio::awaitable, or with any other completion token.
//
//   boost::asio::awaitable<void> buy(holdfast::mutex& stock) {
//     const holdfast::acquire_options options{.wait = 3s};                                 // named: see options.hpp
//     auto lease = co_await holdfast::with_asio(stock.async_acquire(options));             // result<lease>
//     if (!lease) co_return;
//     ...
//     auto released = co_await holdfast::with_asio(lease->async_release());                // result<void>
//   }
//
// boost::asio::awaitable accepts only what Asio knows, so `co_await stock.async_acquire()` does not compile in one.
// with_asio makes an asynchronous operation of Asio's out of anything that an async_ function of ours returns: it
// begins when the token says so (use_awaitable: when it is awaited), completes with the same result, and the handler
// runs on its own associated executor, never inside with_asio.
//
// Cancelling by Asio's means (a cancellation slot, `||` of awaitable_operators, a time-out) is what a stop_token in
// the options is: it completes with errc::cancelled, or with what it came to meanwhile, and leaves no trace in the
// store. A release or renewal that is on its way is not cancelled. When the execution context goes first, the
// operation is cancelled and its handler destroyed, as with Asio's own. Do not give client_options::resume the same
// context then: what cancels would wait in a queue that is not served any more.
//
// Optional: nothing else of Holdfast includes this, or needs Boost. Needs Boost 1.81 or later, headers only.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/task.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace holdfast {

namespace detail {

// The operations of one execution context that are on their way. The context ends them before it goes.
class asio_operations : public boost::asio::execution_context::service {
 public:
  using key_type = asio_operations;
  static inline boost::asio::execution_context::id id;
  struct operation {
    virtual void context_ends() noexcept = 0;

   protected:
    ~operation() = default;
  };

  explicit asio_operations(boost::asio::execution_context& of) : service(of) {}
  void add(const std::shared_ptr<operation>& what) {
    const std::lock_guard lock{guard_};
    all_.emplace(what.get(), what);
  }
  void remove(const operation* what) {
    const std::lock_guard lock{guard_};
    all_.erase(what);
  }

 private:
  void shutdown() noexcept override {
    std::unordered_map<const operation*, std::weak_ptr<operation>> all;
    {
      const std::lock_guard lock{guard_};
      all.swap(all_);
    }
    for (const auto& [address, each] : all)
      if (const auto alive = each.lock()) alive->context_ends();
  }

  std::mutex guard_;
  std::unordered_map<const operation*, std::weak_ptr<operation>> all_;
};

// Between the client's thread, which brings the outcome, and the handler's executor.
template <class Outcome, class Handler>
class asio_operation final : public asio_operations::operation {
 public:
  // The coroutine keeps it alive until the outcome is there. `cancel` may be called until then and afterwards.
  template <class Awaitable>
  static void begin(Handler handler, Awaitable what, std::function<void()> cancel) {
    auto self = std::make_shared<asio_operation>(std::move(handler), std::move(cancel));
    self->operations_.add(self);
    carry(std::move(self), std::move(what));
  }
  // For make_shared.
  asio_operation(Handler handler, std::function<void()> cancel)
      : slot_(boost::asio::get_associated_cancellation_slot(handler)),
        operations_(boost::asio::use_service<asio_operations>(boost::asio::query(
            boost::asio::get_associated_executor(handler), boost::asio::execution::context))),
        waiting_(std::make_unique<waiting>(std::move(handler))),
        cancel_(std::move(cancel)) {
    if (slot_.is_connected())
      slot_.assign([ask = cancel_](boost::asio::cancellation_type how) {
        if (how != boost::asio::cancellation_type::none) ask();
      });
  }
  void context_ends() noexcept override {
    std::unique_ptr<waiting> gone;
    {
      const std::lock_guard lock{guard_};
      gone = std::move(waiting_);
    }
    cancel_();
  }

 private:
  using executor = boost::asio::associated_executor_t<Handler>;
  using slot = boost::asio::associated_cancellation_slot_t<Handler>;
  // All that touches the execution context, which may be gone when *this goes.
  struct waiting {
    explicit waiting(Handler to)
        : work(boost::asio::get_associated_executor(to)), handler(std::move(to)) {}
    boost::asio::executor_work_guard<executor> work;  // the context has something to wait for
    Handler handler;
  };
  template <class Awaitable>
  static fire_and_forget carry(std::shared_ptr<asio_operation> self, Awaitable what) {
    auto outcome = co_await what;
    self->deliver(std::move(outcome));
  }
  // Known to the context until all that touches it is done: a context that ends meanwhile waits for the guard. The slot
  // belongs to the handler's thread.
  void deliver(Outcome outcome) {
    const std::lock_guard lock{guard_};
    if (!waiting_) return;
    auto last = std::move(waiting_);
    boost::asio::post(
        last->work.get_executor(),
        [to = std::move(last->handler), what = std::move(outcome), from = slot_]() mutable {
          if (from.is_connected()) from.clear();
          std::move(to)(std::move(what));
        });
    last.reset();
    operations_.remove(this);
  }

  std::mutex guard_;
  slot slot_;
  asio_operations& operations_;
  std::unique_ptr<waiting> waiting_;  // under guard; nothing once the handler is on its way or gone
  std::function<void()> cancel_;
};

template <class Outcome, class Awaitable, class Token>
auto initiate_on_asio(Awaitable what, std::function<void()> cancel, Token& token) {
  return boost::asio::async_initiate<Token, void(Outcome)>(
      [](auto handler, Awaitable begun, std::function<void()> ask) {
        asio_operation<Outcome, std::decay_t<decltype(handler)>>::begin(
            std::move(handler), std::move(begun), std::move(ask));
      },
      token, std::move(what), std::move(cancel));
}

}  // namespace detail

template <class T, class Token = boost::asio::use_awaitable_t<>>
auto with_asio(async<T> what, Token token = {}) {
  auto cancel = [state = std::weak_ptr{what.state()}] {
    if (const auto alive = state.lock()) alive->cancel();
  };
  return detail::initiate_on_asio<result<T>>(std::move(what), std::move(cancel), token);
}

// Of async_lock_all, say. It ends early by the stop_token in its options only. What it throws ends the program, as with
// spawn.
template <class T, class Token = boost::asio::use_awaitable_t<>>
auto with_asio(task<T> what, Token token = {}) {
  static_assert(!std::is_void_v<T>, "a task<void> is for spawn, or to be awaited by another task");
  return detail::initiate_on_asio<T>(
      std::move(what), [] {}, token);
}

}  // namespace holdfast
