// The judge of a record: which client believed what when, kept outside of the library, by one clock.
//
// What it asks of the turns on one name:
//   - no two clients that exclude each other believe at once: at no moment do the weights of those that saw valid() say
//     true add up to more than the capacity (a writer weighs all of it, a permit k of n);
//   - tokens rise in real time: a client that asked after another had its grant has the larger token;
//   - what a server alone can be blamed for may be excused, in numbers (`leniency`): a holder told of its loss.
#pragma once

#include <holdfast/types.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace holdfast::testing {

struct turn {
  std::string name;
  std::uint64_t weight = 1, capacity = 1;
  fencing_token token{};  // 0: no grant of its own (a writer that reads on)
  steady_time asked{};    // before the acquire
  steady_time begin{};    // the grant was in our hands, and valid
  steady_time last{};     // the last time that valid() was seen to be true
  bool was_told = false;  // of a loss, by the end of the release at the latest
  bool was_lost = false;
  std::size_t client = 0;
};

struct leniency {
  nanoseconds longest{0};         // an overlap with a client that was told
  std::size_t one_holder_in = 0;  // at most every n-th; 0: none
};

struct verdict {
  std::vector<std::string> complaints;
  std::size_t excused = 0;  // holders
};

verdict judge(std::vector<turn> turns, const leniency& mercy = {});

// Where threads write their turns down.
class record {
 public:
  void add(turn added) {
    if (added.begin == steady_time{})
      return;  // lost before it was seen to be valid: it never believed
    const std::lock_guard lock{guard_};
    all_.push_back(std::move(added));
  }
  std::vector<turn> all() const {
    const std::lock_guard lock{guard_};
    return all_;
  }
  std::size_t size() const {
    const std::lock_guard lock{guard_};
    return all_.size();
  }
  std::size_t losses() const;

 private:
  mutable std::mutex guard_;
  std::vector<turn> all_;
};

}  // namespace holdfast::testing
