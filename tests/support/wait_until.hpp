// Tests wait for conditions, never for time alone.
#pragma once

#include <chrono>
#include <thread>

namespace holdfast::testing {

using namespace std::chrono_literals;

// Generous, because the machine may be busy: it is only ever used up by a test that fails.
inline constexpr std::chrono::nanoseconds patience = 10s;

// Did the condition come true in time?
template <class Condition>
bool wait_until(Condition&& condition, std::chrono::nanoseconds limit = patience) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return static_cast<bool>(condition());
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Was the condition true all the time?
template <class Condition>
bool stays_true(Condition&& condition, std::chrono::nanoseconds length) {
  const auto end = std::chrono::steady_clock::now() + length;
  do {
    if (!condition()) return false;
    std::this_thread::sleep_for(1ms);
  } while (std::chrono::steady_clock::now() < end);
  return true;
}

}  // namespace holdfast::testing
