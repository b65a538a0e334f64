// The network that fault tests build upon is broken in exactly the way it says.
#include "support/fault_proxy.hpp"

#include "support/wait_until.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>

namespace holdfast::testing {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Sends back what it hears, in capitals: so an echo is not mistaken for a loop in the proxy.
class shouting_server {
 public:
  shouting_server() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const auto address = loopback(port_.number());
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    thread_ = std::thread{[this] { run(); }};
  }
  ~shouting_server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::uint16_t port() const { return port_.number(); }
  std::size_t heard() const { return heard_; }

 private:
  // One client after the other.
  void run() {
    for (;;) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      std::array<char, 4096> buffer{};
      for (;;) {
        const auto count = ::recv(client, buffer.data(), buffer.size(), 0);
        if (count <= 0) break;
        heard_ += static_cast<std::size_t>(count);
        for (auto& c : buffer) c = static_cast<char>(std::toupper(c));
        ::send(client, buffer.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL);
      }
      ::close(client);
    }
  }

  reserved_port port_;
  int listener_;
  std::atomic<std::size_t> heard_{0};
  std::thread thread_;
};

class plain_client {
 public:
  explicit plain_client(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address = loopback(port);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      problem_ = errno;
    }
  }
  ~plain_client() { ::close(socket_); }
  plain_client(const plain_client&) = delete;
  plain_client& operator=(const plain_client&) = delete;

  int problem() const { return problem_; }  // errno of the first failure
  void say(const std::string& text) { ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Up to `size` bytes; fewer when the stream ends, breaks or falls silent.
  std::string hear(std::size_t size, std::chrono::milliseconds limit = 10s) {
    std::string heard;
    while (heard.size() < size && is_readable(limit)) {
      std::array<char, 4096> buffer{};
      const auto count =
          ::recv(socket_, buffer.data(), std::min(size - heard.size(), buffer.size()), 0);
      if (count < 0) problem_ = errno;
      if (count <= 0) break;
      ++pieces_;
      heard.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return heard;
  }
  bool is_readable(std::chrono::milliseconds limit) const {
    pollfd ready{socket_, POLLIN, 0};
    return ::poll(&ready, 1, static_cast<int>(limit.count())) == 1;
  }
  int pieces() const { return pieces_; }

 private:
  int socket_;
  int problem_ = 0;
  int pieces_ = 0;
};

// Long enough to trust that nothing comes.
constexpr auto silence = 50ms;

class fault_proxy_test : public ::testing::Test {
 protected:
  shouting_server server;
  fault_proxy proxy{server.port()};
};

TEST_F(fault_proxy_test, without_faults_it_is_only_a_wire) {
  plain_client client{proxy.port()};
  client.say("hello");
  EXPECT_EQ(client.hear(5), "HELLO");
  const std::string large(300'000, 'x');
  std::thread writer{[&] { client.say(large); }};
  EXPECT_EQ(client.hear(large.size()), std::string(large.size(), 'X'));
  writer.join();
  EXPECT_EQ(proxy.connections(), 1U);
  EXPECT_EQ(proxy.bytes(fault_proxy::requests), large.size() + 5);
  EXPECT_EQ(proxy.bytes(fault_proxy::replies), large.size() + 5);
}

TEST_F(fault_proxy_test, the_end_of_a_stream_is_passed_on) {
  { const plain_client client{proxy.port()}; }
  EXPECT_TRUE(wait_until([&] { return proxy.connections() == 1 && proxy.open() == 0; }));
  plain_client next{proxy.port()};  // the server serves one at a time, so it has seen the end
  next.say("a");
  EXPECT_EQ(next.hear(1), "A");
}

TEST_F(fault_proxy_test, each_direction_is_delayed_by_its_own_time) {
  plain_client client{proxy.port()};
  proxy.delay(fault_proxy::requests, 30ms);
  proxy.delay(fault_proxy::replies, 40ms);
  const auto begin = std::chrono::steady_clock::now();
  client.say("a");
  EXPECT_EQ(client.hear(1), "A");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 70ms);
}

TEST_F(fault_proxy_test, a_dropped_reply_was_executed_and_is_never_heard) {
  plain_client client{proxy.port()};
  proxy.drop(fault_proxy::replies);
  client.say("ab");
  EXPECT_TRUE(wait_until([&] { return proxy.bytes(fault_proxy::replies) == 2; }));
  EXPECT_EQ(server.heard(), 2U);
  proxy.heal();
  client.say("cd");  // what came now would be taken for the answer to "ab"
  EXPECT_TRUE(wait_until([&] { return server.heard() == 4; }));
  EXPECT_FALSE(client.is_readable(silence));
}

TEST_F(fault_proxy_test, a_dropped_request_is_not_executed) {
  plain_client client{proxy.port()};
  client.say("a");
  EXPECT_EQ(client.hear(1), "A");
  proxy.drop(fault_proxy::requests);
  client.say("b");
  EXPECT_TRUE(wait_until([&] { return proxy.bytes(fault_proxy::requests) == 2; }));
  EXPECT_FALSE(client.is_readable(silence));
  EXPECT_EQ(server.heard(), 1U);
}

TEST_F(fault_proxy_test, what_was_held_is_delivered_when_it_is_released) {
  proxy.freeze();
  plain_client client{proxy.port()};
  EXPECT_EQ(client.problem(), 0);
  client.say("a");
  EXPECT_FALSE(client.is_readable(silence));
  EXPECT_EQ(server.heard(), 0U);
  proxy.freeze(false);
  EXPECT_EQ(client.hear(1), "A");

  proxy.hold(fault_proxy::replies);
  client.say("b");
  EXPECT_TRUE(wait_until([&] { return server.heard() == 2; }));
  EXPECT_FALSE(client.is_readable(silence));
  proxy.hold(fault_proxy::replies, false);
  EXPECT_EQ(client.hear(1), "B");
}

TEST_F(fault_proxy_test, a_reply_is_cut_where_it_was_told_to) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}}) {
    plain_client client{proxy.port()};
    proxy.cut_after(bytes);
    client.say("hello");
    EXPECT_EQ(client.hear(5), std::string{"HELLO"}.substr(0, bytes));
    EXPECT_EQ(client.problem(), ECONNRESET);
  }
  plain_client later{proxy.port()};
  later.say("hello");
  EXPECT_EQ(later.hear(5), "HELLO");
}

TEST_F(fault_proxy_test, every_connection_is_cut_at_once) {
  plain_client client{proxy.port()};
  client.say("a");
  EXPECT_EQ(client.hear(1), "A");
  proxy.cut();
  EXPECT_EQ(proxy.open(), 0U);
  EXPECT_EQ(client.hear(1), "");
  EXPECT_EQ(client.problem(), ECONNRESET);
}

TEST_F(fault_proxy_test, replies_trickle_in_pieces) {
  plain_client client{proxy.port()};
  proxy.trickle();
  const std::string text(2000, 'x');
  client.say(text);
  EXPECT_EQ(client.hear(text.size()), std::string(text.size(), 'X'));
  EXPECT_GT(client.pieces(), 2);
}

TEST_F(fault_proxy_test, connections_are_refused_until_they_are_not) {
  plain_client before{proxy.port()};
  before.say("a");
  EXPECT_EQ(before.hear(1), "A");
  proxy.refuse();
  EXPECT_EQ(plain_client{proxy.port()}.problem(), ECONNREFUSED);
  before.say("b");
  EXPECT_EQ(before.hear(1), "B");
  proxy.refuse(false);
  EXPECT_EQ(plain_client{proxy.port()}.problem(), 0);
}

TEST(fault_proxy, without_a_server_a_connection_is_reset) {
  const reserved_port nobody;
  const fault_proxy proxy{nobody.number()};
  plain_client client{proxy.port()};
  EXPECT_EQ(client.hear(1), "");
  EXPECT_TRUE(client.problem() == ECONNRESET || client.problem() == ECONNREFUSED);
}

}  // namespace
}  // namespace holdfast::testing
