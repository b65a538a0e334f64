// Assertions about result<T>.
#pragma once

#include <holdfast/result.hpp>

#include <gtest/gtest.h>

#include <ostream>

namespace holdfast {

inline void PrintTo(errc code, std::ostream* out) { *out << to_string(code); }

}  // namespace holdfast

namespace holdfast::testing {

template <class T>
::testing::AssertionResult is_ok(const result<T>& outcome) {
  if (outcome) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << to_string(outcome.error().code()) << ": " << outcome.error().message();
}

template <class T>
::testing::AssertionResult fails_with(const result<T>& outcome, errc code) {
  if (outcome)
    return ::testing::AssertionFailure() << "succeeded, " << to_string(code) << " expected";
  if (outcome.error().code() == code) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(outcome.error().code()) << " instead of "
                                       << to_string(code) << ": " << outcome.error().message();
}

// Runs what throws lock_error and gives back its code; nothing when it does not throw.
template <class Action>
std::optional<errc> thrown_by(Action&& action) {
  try {
    action();
  } catch (const lock_error& e) {
    return e.reason();
  }
  return std::nullopt;
}

}  // namespace holdfast::testing
