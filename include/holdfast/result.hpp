// result<T>: a value or an error, shaped like C++23's std::expected<T, holdfast::error>, so that the alias can be
// swapped when every compiler we support has it.
//
//   auto got = stock.acquire({.wait = 3s});          // result<lease>
//   if (!got) return report(got.error().message());  // branch on got.error().code()
//   use(got->token());
//   auto sure = stock.acquire().value();             // the lease, or throws lock_error
//
// Move-only where T is. [[nodiscard]]: a failure must be looked at, or thrown away in so many words. Thread safety is
// that of a plain value: const members from any thread, everything else from one at a time.
#pragma once

#include <holdfast/error.hpp>

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace holdfast {

template <class T>
class [[nodiscard]] result {
 public:
  using value_type = T;
  using error_type = holdfast::error;

  // From either, implicitly: `return lease;` and `return error{errc::busy, "..."};`.
  result(T value) : state_(std::in_place_index<0>, std::move(value)) {}                    // NOLINT
  result(holdfast::error failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  // REQUIRES: has_value(). As with std::expected, no check is made. References live as long as this result.
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }

  // The value, or throws lock_error with the error's code and sentence.
  T& value() & { return check(), **this; }
  const T& value() const& { return check(), **this; }
  T&& value() && { return check(), std::move(**this); }
  // The value, moved out, or `other`. Of temporaries only: std::move(got).value_or(...).
  template <class U>
  T value_or(U&& other) && {
    return has_value() ? std::move(**this) : static_cast<T>(std::forward<U>(other));
  }

  // REQUIRES: !has_value(). No check is made.
  const holdfast::error& error() const& noexcept { return *std::get_if<1>(&state_); }
  holdfast::error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

 private:
  void check() const {
    if (!has_value()) throw lock_error(error());
  }
  std::variant<T, holdfast::error> state_;
};

// Done, or an error.
template <>
class [[nodiscard]] result<void> {
 public:
  using value_type = void;
  using error_type = holdfast::error;

  // Done.
  result() = default;
  result(holdfast::error failure) : failure_(std::move(failure)) {}  // NOLINT

  bool has_value() const noexcept { return !failure_; }
  explicit operator bool() const noexcept { return has_value(); }
  // Nothing, or throws lock_error.
  void value() const {
    if (failure_) throw lock_error(*failure_);
  }
  // REQUIRES: !has_value(). No check is made.
  const holdfast::error& error() const& noexcept { return *failure_; }
  holdfast::error&& error() && noexcept { return std::move(*failure_); }

 private:
  std::optional<holdfast::error> failure_;
};

}  // namespace holdfast
