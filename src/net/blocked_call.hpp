// A thread in a blocking call on a shared connection, and the list of those that wait.
#pragma once

#include "support/parker.hpp"

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>

namespace holdfast::net {

// How long a call may take, and what may end it earlier.
struct limits {
  steady_time deadline = steady_time::max();
  std::stop_token stop{};
  // The generation of the one connection that may carry it, for a request that counts on what was heard over that one:
  // when it is gone, or not there yet, the request is not sent (unavailable). 0: any.
  std::uint64_t only_over = 0;
};

using stop_watch = std::stop_callback<std::function<void()>>;

// Lives on the stack of its thread. All but `wake` is guarded by the connection's mutex.
struct blocked_call {
  bool is_follower = false;  // in the list of those that may become the leader
  bool stopped = false;
  // Answered or failed. Not the same as `wake`: a leader is done without being woken, and a thread that wakes for
  // another reason must see that it is done.
  bool done = false;
  std::optional<error> failure{};
  // wake.set() is called at most once, without the mutex, by the thread that has set this under the mutex. So a
  // call that finds it set waits for that call before its stack frame goes.
  bool wake_claimed = false;
  blocked_call* older = nullptr;
  blocked_call* newer = nullptr;
  blocked_call* next_done = nullptr;  // see protocol_events
  support::parker wake{};
};

// The blocked calls that have no answer yet and do not read. (Leader and followers: the leader reads for all.)
class follower_list {
 public:
  bool empty() const noexcept { return newest_ == nullptr; }
  void add(blocked_call& call) noexcept;
  void remove(blocked_call& call) noexcept;  // nothing happens when it is not in here
  // The newest has the longest way to go, so it can lead for longest.
  blocked_call* take_newest() noexcept;

 private:
  blocked_call* newest_ = nullptr;
};

}  // namespace holdfast::net
