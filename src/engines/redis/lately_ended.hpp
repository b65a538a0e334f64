// What ended an owner lately, behind Sentinel and in a cluster: it is said once more to the next master.
//
// A former master goes on answering until its clients hear of the next one, for about a second of a planned fail-over;
// and one that dies takes with it what its replicas had not got yet. The next master knows nothing of a release that
// was answered then: the lock would stay with an owner whose client lives and will never ask about it again, and a
// place in the queue would be served although no waiter is there. So requests that ended an owner are kept for a while.
// Each names its owner, and no owner that was ended is used again, so they touch no other, however often and however
// late they arrive. (An upgrade that leaves gives up its place only, and may hold afterwards: its place alone is taken
// away.)
#pragma once

#include "engines/redis/command.hpp"

#include <holdfast/types.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace holdfast::engines::redis {

class connections;
class tracked_channel;

class lately_ended {
 public:
  // `open`: false when the connections are closed; of the reactor's thread.
  lately_ended(connections& in, std::shared_ptr<bool> open) : in_(in), open_(std::move(open)) {}

  // Which master it is, by a number. To be read before what note() is about is sent.
  std::uint64_t master() const noexcept { return master_.load(); }
  // It was answered, over this connection.
  void note(std::uint64_t asked, tracked_channel& over, command what);

  // On the reactor's thread: another server is the master; and: the stream leads to it.
  void master_changes() noexcept;
  void came_up();

 private:
  struct ended {
    tracked_channel* over;
    command what;
    steady_time at;
  };
  void say_again(ended one, steady_time until);

  connections& in_;
  const std::shared_ptr<bool> open_;
  std::atomic<std::uint64_t> master_{0};
  std::mutex guard_;
  std::deque<ended> kept_;  // the oldest first
  bool changes_ = false;    // the next master is not reached yet
};

}  // namespace holdfast::engines::redis
