// When a request is tried again, and at which member. Pure: answers in, the next step out.
//
// A try that was certainly not executed may be repeated; one whose fate is not known only if the request is
// repeatable. With several members a try gets about a second: the member may be cut off from the others, and then it
// would let us wait for 7 s before it says so, which is longer than many a lease.
#pragma once

#include "engines/etcd/errors.hpp"

#include <holdfast/engine.hpp>

namespace holdfast::engines::etcd {

class retry_policy {
 public:
  enum class step : std::uint8_t { done, again, pause, login };

  retry_policy(std::size_t members, bool repeatable, bool can_login) noexcept
      : members_(members), repeatable_(repeatable), can_login_(can_login) {}

  // Until when the next try may take.
  steady_time until(steady_time now, steady_time deadline) const noexcept;
  // After again and pause: at another member, if there is one.
  step judge(const result<grpc::reply>& got, bool may_go_on);
  // What the caller is told: an unknown fate of an earlier try counts.
  result<grpc::reply> conclude(result<grpc::reply> last) const;
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

}  // namespace holdfast::engines::etcd
