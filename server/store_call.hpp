// A start_ verb of an engine, asked from the loop: its outcome comes on the loop, whatever thread the engine has it on.
#pragma once

#include "http.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace holdfast::server {

template <class T>
class store_call final : public completion<T>, public std::enable_shared_from_this<store_call<T>> {
 public:
  // begin(completion<T>&) asks; then(result<T>) is called once, perhaps before this returns; not at all when the loop
  // has ended. What they capture stays alive until then.
  template <class Begin>
  static void ask(loop& on, Begin begin, std::function<void(result<T>)> then) {
    const auto self = std::make_shared<store_call>(on, std::move(then));
    self->self_ = self;
    begin(*self);
    if (self->is_met_.exchange(true)) self->deliver();
  }
  store_call(loop& on, std::function<void(result<T>)> then) : loop_(on), then_(std::move(then)) {}

 private:
  void complete(result<T> outcome) noexcept override {
    const auto self = std::move(self_);
    outcome_.emplace(std::move(outcome));
    // Before ask() has come so far, it goes on by itself, on the loop.
    if (is_met_.exchange(true)) loop_.post([self] { self->deliver(); });
  }
  void deliver() {
    const auto then = std::exchange(then_, nullptr);
    then(std::move(*outcome_));
  }

  loop& loop_;
  std::function<void(result<T>)> then_;
  std::optional<result<T>> outcome_;
  std::atomic<bool> is_met_{false};
  std::shared_ptr<store_call> self_;
};

}  // namespace holdfast::server
