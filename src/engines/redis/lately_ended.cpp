#include "engines/redis/lately_ended.hpp"

#include "engines/redis/connections.hpp"

#include <chrono>
#include <utility>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

// Until clients have heard of the next master, and replicas have got what the old one knew. The time stands still while
// nothing is answered: of a master that dies, what came last is kept, however long it takes to replace it.
constexpr nanoseconds long_enough = 10s;
constexpr nanoseconds worth_nothing = 10min;
// So that a fail-over costs the next master a tenth of a second for each client at most. A client that ends more than
// 800 owners a second keeps less than ten seconds of them.
constexpr std::size_t most_kept = 8'192;
constexpr nanoseconds between_tries = 500ms, to_answer = 2s, longest_trying = 30s;

bool may_be_tried_again(const error& why) {
  return why.code() == errc::unavailable || why.code() == errc::outcome_unknown;
}

}  // namespace

// An answer of the old master that is read when the next one was told already is said on its own.
void lately_ended::note(std::uint64_t asked, tracked_channel& over, command what) {
  const auto now = std::chrono::steady_clock::now();
  std::optional<ended> late;
  {
    const std::lock_guard lock{guard_};
    while (!kept_.empty() && (kept_.size() >= most_kept || now - kept_.front().at > long_enough))
      kept_.pop_front();
    kept_.push_back({&over, std::move(what), now});
    if (asked != master_.load() && !changes_) late = kept_.back();
  }
  if (late) say_again(std::move(*late), now + longest_trying);
}

void lately_ended::master_changes() noexcept {
  const std::lock_guard lock{guard_};
  master_.fetch_add(1);
  changes_ = true;
}

// They stay: it may be replaced as well.
void lately_ended::came_up() {
  std::deque<ended> all;
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock{guard_};
    if (!std::exchange(changes_, false)) return;
    while (!kept_.empty() && now - kept_.front().at > worth_nothing) kept_.pop_front();
    all = kept_;
  }
  for (auto& one : all) say_again(std::move(one), now + longest_trying);
}

void lately_ended::say_again(ended one, steady_time until) {
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + to_answer;
  auto what = one.what;
  auto& over = *one.over;
  in_.post(over, std::move(what), soon, {},
           [this, one = std::move(one), until](const result<answer>& got) {
             const auto now = std::chrono::steady_clock::now();
             if (got || !may_be_tried_again(got.error()) || now >= until) return;
             in_.driver().at(now + between_tries, [this, open = open_, one, until] {
               if (*open) say_again(one, until);
             });
           });
}

}  // namespace holdfast::engines::redis
