// The tries of one question: retry_policy, and what libcurl repeated by itself, which counts like a try that was not
// answered.
#pragma once

#include "engines/consul/agent.hpp"

#include <utility>

namespace holdfast::engines::consul {

class attempts {
 public:
  attempts(std::size_t members, bool repeatable) noexcept : policy_(members, repeatable, false) {}

  // Of the next try; until when it may take.
  steady_time begin(steady_time now, steady_time deadline) noexcept {
    unsure_before_ = policy_.is_unsure() || resent_;
    return policy_.until(now, deadline);
  }
  retry_policy::step judge(const result<http_reply>& got, unsigned sends, bool may_go_on) {
    resent_ = resent_ || sends > 1;
    return policy_.judge(fate_of(got), may_go_on);
  }
  // Before the next round. A server that is overloaded, or elects a leader, is asked ever less often.
  nanoseconds pause() noexcept {
    constexpr nanoseconds longest_pause = std::chrono::milliseconds{250};
    return std::min(longest_pause, pause_between_rounds * (1U << std::min(rounds_++, 3U)));
  }
  answer conclude(result<http_reply> last) const {
    const bool repeated = unsure_before_ || resent_;
    if (!last && last.error().is_not_done() && (policy_.is_unsure() || resent_)) {
      // This try was certainly in vain; an earlier one was not.
      const auto code = last.error().code();
      return {
          error{code == errc::unavailable ? errc::outcome_unknown : code, last.error().message()},
          repeated};
    }
    return {std::move(last), repeated};
  }

 private:
  retry_policy policy_;
  bool unsure_before_ = false;
  bool resent_ = false;
  unsigned rounds_ = 0;
};

inline bool may_go_on(const call& limits) {
  return !limits.stop.stop_requested() && std::chrono::steady_clock::now() < limits.deadline;
}

}  // namespace holdfast::engines::consul
