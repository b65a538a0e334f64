#include "engines/mysql/watchdog.hpp"

#include "support/wait_until.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <array>

namespace holdfast::engines::mysql {
namespace {

using namespace std::chrono_literals;
using holdfast::testing::stays_true;
using holdfast::testing::wait_until;

struct pair {
  pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0); }
  pair(const pair&) = delete;
  pair& operator=(const pair&) = delete;
  ~pair() {
    for (const int end : ends) ::close(end);
  }
  // Does what is written at one end arrive at the other?
  bool works() const {
    char byte = 'x';
    return ::send(ends[0], &byte, 1, MSG_NOSIGNAL) == 1 && ::recv(ends[1], &byte, 1, 0) == 1;
  }
  std::array<int, 2> ends{-1, -1};
};

// The driver closes a socket as soon as something is wrong with it, in the middle of a call, and the system gives its
// number to the next socket or file, in any thread of the program.
class mysql_watchdog : public ::testing::Test {
 protected:
  void replace_socket() { ASSERT_EQ(::dup2(stranger_.ends[0], ours_.ends[0]), ours_.ends[0]); }

  watchdog all_;
  pair ours_, stranger_;
  watchdog::socket_deadline deadline_{all_, ours_.ends[0]};
};

TEST_F(mysql_watchdog, cuts_what_takes_too_long) {
  deadline_.arm(std::chrono::steady_clock::now() + 1ms);
  EXPECT_TRUE(wait_until([&] { return !ours_.works(); }));
  EXPECT_TRUE(deadline_.disarm());
}

TEST_F(mysql_watchdog, cuts_nobody_who_has_got_the_number_of_a_closed_socket) {
  deadline_.arm(std::chrono::steady_clock::now() + 1ms);
  ASSERT_TRUE(wait_until([&] { return !ours_.works(); }));
  replace_socket();
  deadline_.cut();
  EXPECT_TRUE(stranger_.works());
}

TEST_F(mysql_watchdog, deadline_cuts_nobody_who_has_got_the_number_of_a_closed_socket) {
  replace_socket();
  deadline_.arm(std::chrono::steady_clock::now() + 1ms);
  char byte = 0;
  EXPECT_EQ(::recv(ours_.ends[1], &byte, 1, 0), 0) << "ended when its time was up";
  EXPECT_TRUE(stays_true([&] { return stranger_.works(); }, 50ms));
}

}  // namespace
}  // namespace holdfast::engines::mysql
