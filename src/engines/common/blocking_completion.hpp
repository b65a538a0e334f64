// A start_ verb, awaited: for verbs that are not worth a second implementation.
#pragma once

#include "support/parker.hpp"

#include <holdfast/engine.hpp>

#include <optional>

namespace holdfast::engines {

template <class T>
class blocking_completion final : public completion<T> {
 public:
  void complete(result<T> outcome) noexcept override {
    outcome_.emplace(std::move(outcome));
    bed_.set(1);
  }
  bool is_there_by(steady_time deadline) noexcept { return bed_.wait(deadline) != 0; }
  result<T> get() {
    bed_.wait(steady_time::max());
    return std::move(*outcome_);
  }

 private:
  support::parker bed_;
  std::optional<result<T>> outcome_;
};

}  // namespace holdfast::engines
