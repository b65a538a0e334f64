// The program that runs under a lock: found, started in a process group of its own, and never left alone.
#pragma once

#include "signals.hpp"

#include <holdfast/types.hpp>

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include <vector>

namespace holdfast::cli {

// A program that can be executed: looked up before waiting for a lock.
struct program {
  std::string path;
  std::vector<std::string> words;  // the first is the name it was called by
};

struct program_error {
  int exit_code;  // 126 or 127
  std::string sentence;
};

// Looks along PATH as a shell does. Throws program_error.
program find_program(const std::vector<std::string>& words);

// What the child finds in its environment beside ours; nullopt removes a variable.
using environment = std::map<std::string, std::optional<std::string>>;

// Starts it in a new process group with the signal mask and handlers of our own start, in the foreground of
// `terminal` unless that is -1. The kernel sends it `when_orphaned` (unless 0) when the calling thread ends,
// however that comes about. Throws program_error, std::system_error.
// The guard knows its group before the program begins.
class guard_process;
pid_t start(const program& what, const environment& changes, const signal_inbox& signals,
            int terminal, int when_orphaned, guard_process& guard);

// A tiny process that outlives us by moments: when holdfast is killed, the kernel tells only the program itself,
// not what that has started. The guard sees our end too, and ends the whole group.
//
// Construct it before the store is opened: the guard is a fork, and must have no part in the session and its files.
class guard_process {
 public:
  enum class duty { end_the_group, warn };
  // Where the lock is, for release_if_killed().
  struct lock_address {
    std::string store, name;
  };
  guard_process(duty what, std::chrono::nanoseconds grace, std::string warning, lock_address lock);
  ~guard_process();
  guard_process(const guard_process&) = delete;
  guard_process& operator=(const guard_process&) = delete;

  void watch(pid_t group) noexcept;
  void dismiss() noexcept { watch(0); }  // the group has ended, or needs no guard any more
  // When we are killed, and the group has ended, this owner's grant is given back, for stores that would need seconds
  // to notice our end. Takes effect with duty::end_the_group only: a command that goes on may believe in its lock.
  void release_if_killed(const owner_id& owner) noexcept;
  void forget_grant() noexcept { release_if_killed({}); }

 private:
  struct message {
    pid_t group;
    bool about_owner;
    owner_id owner;
  };
  void send(const message& what) noexcept;
  [[noreturn]] static void run_guard(int messages, duty what, std::chrono::nanoseconds grace,
                                     const std::string& warning, const lock_address& lock) noexcept;
  descriptor pipe_;
  pid_t pid_ = -1;
};

// A time from now, or never for one as long as "forever".
std::chrono::steady_clock::time_point in(std::chrono::nanoseconds length) noexcept;

// Is any process of the group still there (and ours to signal)?
bool group_exists(pid_t group) noexcept;

}  // namespace holdfast::cli
