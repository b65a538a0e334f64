// A server that speaks as much of the Redis protocol as a test wants it to, and lies as the test wants it to.
//
//   fake_redis server;                                                   // plays a Redis that has just started
//   server.answer("EVALSHA", "-LOADING Redis is loading the dataset in memory\r\n");
//   server.answer("TIME", fake_redis::silence);
#pragma once

#include "resp/resp.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace holdfast::testing {

class fake_redis {
 public:
  inline static const std::string silence{};
  inline static const std::string hang_up{"\1"};

  fake_redis() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof where;
    auto* const generic = reinterpret_cast<sockaddr*>(&where);
    if (::bind(listener_, generic, length) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, generic, &length) != 0)
      throw std::runtime_error("no fake server");
    port_ = ntohs(where.sin_port);
    acceptor_ = std::thread{[this] { accept_all(); }};
  }
  fake_redis(const fake_redis&) = delete;
  fake_redis& operator=(const fake_redis&) = delete;
  ~fake_redis() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    {
      const std::lock_guard lock{guard_};
      for (const int one : open_) ::shutdown(one, SHUT_RDWR);
    }
    for (auto& one : workers_) one.join();
  }

  std::string url(std::string_view login = {}) const {
    return fmt::format("redis://{}127.0.0.1:{}", login, port_);
  }
  // From now on, to every such command.
  void answer(const std::string& command, std::string bytes) {
    const std::lock_guard lock{guard_};
    answers_[command] = std::move(bytes);
  }
  std::size_t asked(const std::string& command) const {
    const std::lock_guard lock{guard_};
    const auto at = asked_.find(command);
    return at == asked_.end() ? 0 : at->second;
  }

 private:
  static std::string usual(std::string_view command) {
    if (command == "HELLO") return "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n";
    if (command == "SUBSCRIBE") return ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    if (command == "DEL") return ":0\r\n";
    if (command == "EVALSHA") return ":0\r\n";  // busy, not held ...
    if (command != "TIME") return "+OK\r\n";
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    const auto seconds = std::to_string(now / 1'000'000), micros = std::to_string(now % 1'000'000);
    return fmt::format("*2\r\n${}\r\n{}\r\n${}\r\n{}\r\n", seconds.size(), seconds, micros.size(),
                       micros);
  }

  std::string reply_to(const std::string& command) {
    const std::lock_guard lock{guard_};
    ++asked_[command];
    const auto at = answers_.find(command);
    return at == answers_.end() ? usual(command) : at->second;
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const std::lock_guard lock{guard_};
      open_.push_back(fd);
      workers_.emplace_back([this, fd] {
        serve(fd);
        const std::lock_guard gone{guard_};
        open_.remove(fd);
        ::close(fd);
      });
    }
  }

  void serve(int fd) {
    resp::frame_scanner framing;
    std::string unread;
    for (;;) {
      const auto frame = framing.next(unread);
      if (!frame) return;
      if (frame->length == 0) {
        std::array<char, 16384> buffer;  // NOLINT: filled by recv
        const auto got = ::recv(fd, buffer.data(), buffer.size(), 0);
        if (got <= 0) return;
        unread.append(buffer.data(), static_cast<std::size_t>(got));
        continue;
      }
      std::string_view bytes{unread.data(), frame->length};
      const auto command = resp::take(bytes);
      if (!command || command->items.empty()) return;
      const auto reply = reply_to(std::string{command->items.front().text});
      unread.erase(0, frame->length);
      if (reply == hang_up) return;
      if (::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  const int listener_;
  std::uint16_t port_ = 0;
  mutable std::mutex guard_;
  std::map<std::string, std::string> answers_;
  std::map<std::string, std::size_t> asked_;
  std::list<int> open_;
  std::list<std::thread> workers_;
  std::thread acceptor_;
};

}  // namespace holdfast::testing
