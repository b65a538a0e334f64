// Losses that the store told of before any hold had the grant: the answer that brought it was still on its way, or the
// lease was just moving to another hold. Kept for a while for the hold that gets it; that a session is over, for good.
//
// The one side notes the owner and then looks at all holds; the other makes its grant visible (hold::publish) and then
// looks here. Both in sequential consistency, so that one of them sees the other.
#pragma once

#include <holdfast/engine.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace holdfast::core {

class early_losses {
 public:
  void note(std::span<const owner_id> owners, std::string_view why, steady_time now,
            nanoseconds keep_for) {
    const std::lock_guard locked{guard_};
    // Most are of grants that were given back at the same moment: no hold asks about those any more.
    for (; !by_age_.empty() && now - by_age_.front().first > keep_for; by_age_.pop_front())
      if (const auto at = noted_.find(by_age_.front().second);
          at != noted_.end() && at->second.told == by_age_.front().first)
        noted_.erase(at);
    for (const auto& owner : owners) {
      noted_.insert_or_assign(owner, loss{std::string{why}, now});
      by_age_.emplace_back(now, owner);
    }
    count_.store(noted_.size());
  }
  // Why it was lost, once; nothing when it was not. Costs a comparison while nothing is noted.
  std::optional<std::string> take(const owner_id& owner) {
    if (count_.load() == 0) return std::nullopt;
    const std::lock_guard locked{guard_};
    auto found = noted_.extract(owner);
    count_.store(noted_.size());
    if (!found) return std::nullopt;
    return std::move(found.mapped().why);
  }
  void note_session(std::uint64_t number, std::string_view why) {
    const std::lock_guard locked{guard_};
    if (number <= lost_session_.load()) return;
    why_session_lost_ = why;
    lost_session_.store(number);
  }
  // Why a grant that counts on this session is lost; nothing when it is not.
  std::optional<std::string> of_session(std::uint64_t number) {
    if (number == 0 || number > lost_session_.load()) return std::nullopt;
    const std::lock_guard locked{guard_};
    return why_session_lost_;
  }

 private:
  struct loss {
    std::string why;
    steady_time told;
  };
  std::atomic<std::size_t> count_{0};
  std::mutex guard_;
  std::map<owner_id, loss> noted_;
  std::deque<std::pair<steady_time, owner_id>> by_age_;
  std::atomic<std::uint64_t> lost_session_{0};  // this one and all before
  std::string why_session_lost_;
};

}  // namespace holdfast::core
