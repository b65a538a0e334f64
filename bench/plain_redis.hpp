// Redis servers for a benchmark, and blocking connections to them that do the least.
#pragma once

#include "load.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace baseline {

class plain_connection {
 public:
  explicit plain_connection(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
      fail("A plain connection cannot be made");
  }
  ~plain_connection() { ::close(fd_); }
  plain_connection(const plain_connection&) = delete;
  plain_connection& operator=(const plain_connection&) = delete;

  // Sends, and waits for the answer.
  std::string ask(const std::vector<std::string>& words) {
    send(words);
    return receive();
  }
  void send(const std::vector<std::string>& words) {
    bytes_.clear();
    bytes_ += fmt::format("*{}\r\n", words.size());
    for (const auto& word : words) bytes_ += fmt::format("${}\r\n{}\r\n", word.size(), word);
    if (::send(fd_, bytes_.data(), bytes_.size(), 0) != static_cast<ssize_t>(bytes_.size()))
      fail("A plain connection is lost");
  }
  // One answer on one line (or two, of a bulk string); they come whole.
  std::string receive() {
    char buffer[512];
    const auto got = ::recv(fd_, buffer, sizeof buffer, 0);
    if (got <= 0) fail("A plain connection is lost");
    return {buffer, static_cast<std::size_t>(got)};
  }

 private:
  const int fd_;
  std::string bytes_;
};

struct redis_process {
  explicit redis_process(const folder& where, const std::vector<std::string>& more = {})
      : port(free_port()) {
    std::vector<std::string> words{"redis-server",
                                   "--port",
                                   std::to_string(port),
                                   "--bind",
                                   "127.0.0.1",
                                   "--save",
                                   "",
                                   "--appendonly",
                                   "no",
                                   "--dir",
                                   where.path(),
                                   "--logfile",
                                   fmt::format("redis-{}.log", port)};
    words.insert(words.end(), more.begin(), more.end());
    runs = std::make_unique<process>(words);
  }
  // A plain question is answered, whatever the server is.
  void wait_until_up() const {
    wait_until([this] {
      try {
        return !plain_connection{port}.ask({"PING"}).empty();
      } catch (const std::exception&) {
        return false;
      }
    });
  }
  std::uint16_t port;
  std::unique_ptr<process> runs;
};

inline double ns_per_lock(holdfast::mutex& lock, std::chrono::milliseconds slice) {
  return ns_per(slice, [&] {
    lock.lock();
    lock.unlock();
  });
}

}  // namespace baseline
