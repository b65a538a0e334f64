// Other people's clients of ZooKeeper, as peers that contend with ours: Apache Curator (Java) and kazoo (Python). Each
// is a process with one session that obeys one-line commands.
//
//   if (const auto curator = curator_available(); !curator) GTEST_SKIP() << curator.why;
//   curator_peer java{server.url()};
//   EXPECT_EQ(java.ask("take a mutex /stock"), "taken a");
//   java.tell("take b mutex /stock");                      // waits; answers when it has it
//   EXPECT_EQ(java.ask("give a"), "given a");
//   EXPECT_EQ(java.hear(), "taken b");
//
// HANDLE is a word that the test chooses for what is taken. Each handle is an owner of its own, also within one peer.
//
//   take HANDLE KIND PATH [MORE]       waits for it: "taken HANDLE". The peer obeys other commands meanwhile.
//   try HANDLE KIND PATH [MORE]        one attempt: "taken HANDLE" or "busy HANDLE"
//   within MS HANDLE KIND PATH [MORE]  the same after that time at most
//   give HANDLE                        "given HANDLE"
//   leader KIND PATH                   "leader ID", or "leader" alone
//   participants KIND PATH             "participants ID ID ...", the leader first
//   session                            "session 0x..."
//   quit                               closes the session: "bye"
//
// What fails is answered with "failed" and the reason. Kinds, and what MORE is:
//
//   Curator   mutex, read, write; semaphore PERMITS (InterProcessSemaphoreV2); latch ID (LeaderLatch), selector ID
//             (LeaderSelector); barrier (DistributedBarrier), which is taken when it is open. And: count-get PATH,
//             count-set PATH N, count-add PATH N (SharedCount): "count N". barrier-close PATH, barrier-open PATH:
//             "closed", "open".
//   kazoo     lock, read, write [PATTERN...]; semaphore PERMITS; election ID. Unless told by PATTERN how the nodes of
//             others are named ("-lock-"), kazoo does not see them.
//
// An election is not decided at the first attempt: use `within` for it.
#pragma once

#include "support/line_program.hpp"
#include "support/required.hpp"

#include <chrono>
#include <string>

namespace holdfast::testing {

// Are there java, javac and the jars of Curator?
availability curator_available();
// Is there a Python that has it? From the PATH, or Debian's.
availability kazoo_available();

// The store is HOST:PORT,HOST:PORT/CHROOT, with or without zk:// before it. Returns when the session is there.
// Takes 0.25 s, and once per build 1.5 s more for the compiler.
class curator_peer : public line_program {
 public:
  explicit curator_peer(const std::string& store,
                        std::chrono::milliseconds session_timeout = std::chrono::seconds{6});
};

// Takes 0.1 s.
class kazoo_peer : public line_program {
 public:
  explicit kazoo_peer(const std::string& store,
                      std::chrono::milliseconds session_timeout = std::chrono::seconds{6});
};

}  // namespace holdfast::testing
