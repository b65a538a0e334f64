// When a request to a cluster is tried again, and at which member. Pure: what became of a try in, the next step out.
//
// A try that was certainly not executed may be repeated; one whose fate is not known only if the request is
// repeatable. With several members a try gets about a second: the member may be cut off from the others, and then it
// would let us wait for 7 s before it says so, which is longer than many a lease.
#pragma once

#include <holdfast/engine.hpp>

namespace holdfast::engines {

class retry_policy {
 public:
  // answered: for good, with yes or no. overloaded: refused, for now. no_leader: the member could not do it, or could
  // not say. unanswered: some byte may have left. not_sent: certainly not executed. refused: not to be repeated.
  enum class fate : std::uint8_t {
    answered,
    wants_login,
    overloaded,
    no_leader,
    unanswered,
    not_sent,
    refused
  };
  enum class step : std::uint8_t { done, again, pause, login };

  retry_policy(std::size_t members, bool repeatable, bool can_login) noexcept
      : members_(members), repeatable_(repeatable), can_login_(can_login) {}

  // Until when the next try may take.
  steady_time until(steady_time now, steady_time deadline) const noexcept;
  // After again and pause: at another member, if there is one.
  step judge(fate got, bool may_go_on);
  // What the caller is told: an unknown fate of an earlier try counts.
  template <class T>
  result<T> conclude(result<T> last) const {
    if (last || !unsure_ || last.error().code() != errc::unavailable) return last;
    return error{errc::outcome_unknown, last.error().message()};
  }
  bool is_unsure() const noexcept { return unsure_; }

 private:
  std::size_t members_;
  bool repeatable_, can_login_;
  bool logged_in_ = false;
  bool unsure_ = false;
  std::size_t failed_ = 0;
};

inline constexpr nanoseconds one_try = std::chrono::seconds{1};
inline constexpr nanoseconds pause_between_rounds = std::chrono::milliseconds{50};

}  // namespace holdfast::engines
