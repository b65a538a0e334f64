// The one rule of counters (counter_request in engine.hpp), without a store around it: what was there and what is asked
// for say what will be there.
#pragma once

#include <holdfast/engine.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace holdfast::engines {

struct counter_change {
  enum class kind : std::uint8_t { none, write, erase };
  bool applied = false;
  kind what = kind::none;
  std::int64_t value = 0;  // to write
};

constexpr counter_change change_of(const counter_request& ask, std::optional<std::int64_t> before) {
  using kind = counter_change::kind;
  const counter_change refused{}, write{true, kind::write, ask.operand};
  switch (ask.op) {
    case counter_op::read:
      return {true};
    case counter_op::create:
      return before ? refused : write;
    case counter_op::store:
      return write;
    case counter_op::add: {
      if (!before) return refused;
      std::int64_t sum = 0;
      if (__builtin_add_overflow(*before, ask.operand, &sum)) {
        sum = std::numeric_limits<std::int64_t>::max();  // a count is never negative, so only up
      }
      sum = std::max<std::int64_t>(sum, 0);
      if (sum == *before) return {true};  // no change: no version, no longer life
      return {true, kind::write, sum};
    }
    case counter_op::compare_exchange:
      return before == ask.expected ? write : refused;
    case counter_op::erase:
      return before ? counter_change{true, kind::erase} : refused;
  }
  return refused;
}

// The answer, for stores whose versions are numbers that rise.
inline counter as_counter(bool exists, bool applied, std::int64_t value, std::int64_t version) {
  counter out;
  out.exists = exists;
  out.applied = applied;
  out.value = exists ? value : 0;
  out.version = exists ? static_cast<std::uint64_t>(version) : 0;
  return out;
}

}  // namespace holdfast::engines
