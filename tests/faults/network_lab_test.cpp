// What breaks here: nothing but the cables of the lab. Tests that pull them would find little if they stayed in.
#include "support/network_lab.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

namespace holdfast::testing {
namespace {

class network_of_a_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto lab = network_lab::available(); !lab) GTEST_SKIP() << lab.why;
  }
};

// Whoever is reached refuses the connection, as nobody listens. Silence: 0.
int knock(const network_lab& lab, std::size_t from, std::size_t to) {
  return lab.at(from, [&] {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(1);
    ::inet_pton(AF_INET, lab.address(to).c_str(), &address.sin_addr);
    ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    pollfd ready{.fd = socket, .events = POLLOUT, .revents = 0};
    int code = 0;
    socklen_t size = sizeof code;
    if (::poll(&ready, 1, 200) > 0) ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size);
    ::close(socket);
    return code;
  });
}

bool hears(const network_lab& lab, std::size_t from, std::size_t to) {
  return wait_until([&] { return knock(lab, from, to) == ECONNREFUSED; });
}

std::string interfaces() {
  std::ostringstream names;
  std::ifstream in{"/proc/thread-self/net/dev"};
  for (std::string line; std::getline(in, line);) names << line.substr(0, line.find(':')) << '\n';
  return names.str();
}

TEST_F(network_of_a_test, cut_place_hears_nobody_until_it_is_joined) {
  network_lab lab{3};
  for (const std::size_t other : {std::size_t{1}, network_lab::hub})
    EXPECT_TRUE(hears(lab, 0, other) && hears(lab, other, 0));
  lab.cut(0);
  for (const std::size_t other : {std::size_t{1}, network_lab::hub}) {
    EXPECT_EQ(knock(lab, 0, other), 0);
    EXPECT_EQ(knock(lab, other, 0), 0);
  }
  EXPECT_TRUE(hears(lab, 0, 0)) << "who lives beside it is cut off with it";
  EXPECT_TRUE(hears(lab, 1, 2)) << "the others are well";
  lab.join(0);
  EXPECT_TRUE(hears(lab, 0, 1) && hears(lab, 1, 0));
}

TEST_F(network_of_a_test, separated_places_hear_everybody_else) {
  network_lab lab{3};
  EXPECT_TRUE(hears(lab, 0, 1));
  lab.separate(0, 1);
  EXPECT_EQ(knock(lab, 0, 1), 0);
  EXPECT_EQ(knock(lab, 1, 0), 0);
  for (const std::size_t other : {std::size_t{2}, network_lab::hub})
    EXPECT_TRUE(hears(lab, 0, other) && hears(lab, other, 1));
  lab.reunite(0, 1);
  EXPECT_TRUE(hears(lab, 0, 1) && hears(lab, 1, 0));
}

TEST_F(network_of_a_test, machine_sees_nothing_of_it) {
  const auto before = interfaces();
  network_lab lab{2};
  EXPECT_EQ(interfaces(), before);
  EXPECT_NE(lab.at(0, interfaces), before);
  EXPECT_THROW(lab.at(1, []() -> int { throw std::runtime_error("there"); }), std::runtime_error);
  EXPECT_EQ(interfaces(), before) << "back at home also after a failure";
}

}  // namespace
}  // namespace holdfast::testing
