#include "engines/etcd/retry_policy.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

namespace {

constexpr std::size_t rounds_without_a_connection = 2;

}  // namespace

steady_time retry_policy::until(steady_time now, steady_time deadline) const noexcept {
  if (members_ == 1) return deadline;
  // Longer each time: a cluster that has much to do must not be asked more for that.
  const auto doubled = std::min<std::size_t>(failed_, 4);
  return std::min(deadline, now + one_try * (std::int64_t{1} << doubled));
}

retry_policy::step retry_policy::judge(const result<grpc::reply>& got, bool may_go_on) {
  if (got && got->ok()) return step::done;
  if (got && wants_login(*got) && can_login_ && !logged_in_ && may_go_on) {
    logged_in_ = true;
    return step::login;
  }
  ++failed_;
  const bool round_is_over = failed_ % members_ == 0;
  if (got) {
    if (is_overloaded(*got)) return may_go_on ? step::pause : step::done;
    if (!is_passing(*got)) return step::done;
    unsure_ = true;
    // The whole cluster looks for a leader: a moment is what it takes.
    return repeatable_ && may_go_on ? step::pause : step::done;
  }
  switch (got.error().code()) {
    case errc::outcome_unknown:
      unsure_ = true;
      if (!repeatable_ || !may_go_on) return step::done;
      return round_is_over ? step::pause : step::again;
    case errc::unavailable:
      if (!may_go_on || (!unsure_ && failed_ >= rounds_without_a_connection * members_))
        return step::done;
      return round_is_over ? step::pause : step::again;
    default:
      return step::done;
  }
}

result<grpc::reply> retry_policy::conclude(result<grpc::reply> last) const {
  if (last || !unsure_ || last.error().code() != errc::unavailable) return last;
  return error{errc::outcome_unknown, last.error().message()};
}

}  // namespace holdfast::engines::etcd
