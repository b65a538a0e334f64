#include "engines/common/retry_policy.hpp"

#include <algorithm>

namespace holdfast::engines {

namespace {

constexpr std::size_t rounds_without_a_connection = 2;

}  // namespace

steady_time retry_policy::until(steady_time now, steady_time deadline) const noexcept {
  if (members_ == 1) return deadline;
  // Longer each time: a cluster that has much to do must not be asked more for that.
  const auto doubled = std::min<std::size_t>(failed_, 4);
  return std::min(deadline, now + one_try * (std::int64_t{1} << doubled));
}

retry_policy::step retry_policy::judge(fate got, bool may_go_on) {
  if (got == fate::answered || got == fate::refused) return step::done;
  if (got == fate::wants_login) {
    if (!can_login_ || logged_in_ || !may_go_on) return step::done;
    logged_in_ = true;
    return step::login;
  }
  ++failed_;
  const auto next = failed_ % members_ == 0 ? step::pause : step::again;
  switch (got) {
    case fate::overloaded:
      return may_go_on ? step::pause : step::done;
    case fate::no_leader:
      unsure_ = true;
      // The whole cluster looks for a leader: a moment is what it takes.
      return repeatable_ && may_go_on ? step::pause : step::done;
    case fate::unanswered:
      unsure_ = true;
      return repeatable_ && may_go_on ? next : step::done;
    case fate::not_sent:
      if (!may_go_on || (!unsure_ && failed_ >= rounds_without_a_connection * members_))
        return step::done;
      return next;
    default:
      return step::done;
  }
}

}  // namespace holdfast::engines
