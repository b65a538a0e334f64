// A thread in a blocking call on a shared connection, and the list of those that wait.
#pragma once

#include "support/parker.hpp"

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <functional>
#include <optional>
#include <stop_token>

namespace holdfast::net {

// How long a call may take, and who may end it.
struct limits {
  steady_time deadline = steady_time::max();
  std::stop_token stop{};
};

using stop_watch = std::stop_callback<std::function<void()>>;

// Lives on the stack of its thread. All but `wake` is guarded by the connection's mutex.
struct caller {
  bool waiting = false;  // in the list of those who may be given the lead
  bool stopped = false;
  bool done =
      false;  // answered or failed. Not the same as `wake`: a leader is done without being woken,
  std::optional<error>
      failure{};  // and a caller that wakes for another reason must see that it is done
  // wake.set() is called at most once, without the mutex, by whoever has set this under the mutex. So a caller that
  // finds it set waits for that call before its stack frame goes.
  bool called = false;
  caller* older = nullptr;
  caller* newer = nullptr;
  support::parker wake{};
};

// The callers that have no answer yet and nothing to do.
class waiting_callers {
 public:
  bool empty() const noexcept { return newest_ == nullptr; }
  void add(caller& who) noexcept;
  void remove(caller& who) noexcept;  // nothing happens when it is not in here
  // The newest has the longest way to go, so it can lead for longest.
  caller* take_newest() noexcept;

 private:
  caller* newest_ = nullptr;
};

}  // namespace holdfast::net
