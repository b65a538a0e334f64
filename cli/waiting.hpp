// What `run` says about the holder that is in its way.
#pragma once

#include "args.hpp"

#include <holdfast/client.hpp>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace holdfast::cli {

// The lock that we want.
struct wanted {
  std::string name;
  std::uint64_t permits = 0;  // 0: not as a semaphore
  // Of the grant that the holdfast around this command has of the same name in the same store, by its environment.
  std::optional<fencing_token> around_us{};
};

// The token in our environment when it is of this name and of a store that is the same as far as its address shows:
// names of stores are compared without users and passwords.
std::optional<fencing_token> token_around_us(const arguments& args, const std::string& name);

// What can be said now of those that hold it.
struct held_by {
  std::string words;  // "web1:4242 (nightly) for 3m12s", or "" when it is not known
  bool ourselves =
      false;  // the holdfast around this command does, and we cannot have it beside that
};
held_by look_at_holders(const client& store, const wanted& what);

// While it lives and is not finished, it speaks once, after a second of waiting: on a terminal about the holder, and
// anywhere when we wait for ourselves. Its thread looks at the store through the client that waits.
class wait_notice {
 public:
  wait_notice(const client& store, wanted what);
  ~wait_notice();
  wait_notice(const wait_notice&) = delete;
  wait_notice& operator=(const wait_notice&) = delete;
  // The wait is over: nothing is said any more. Does not wait for a look that is on its way; the destructor does.
  void finish();

 private:
  void speak_after_a_second();
  void say(const held_by& holders) const;
  client store_;
  wanted what_;
  std::mutex guard_;
  std::condition_variable finished_;
  bool is_over_ = false;
  std::thread speaker_;
};

}  // namespace holdfast::cli
