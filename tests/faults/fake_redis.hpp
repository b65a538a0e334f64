// A server that speaks as much of the Redis protocol as a test wants it to, and lies as the test wants it to.
//
//   fake_redis server;                                                   // plays a Redis that has just started
//   server.answer("EVALSHA", "-LOADING Redis is loading the dataset in memory\r\n");
//   server.answer("TIME", fake_redis::silence);
#pragma once

#include "faults/fake_server.hpp"

#include "resp/resp.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace holdfast::testing {

class fake_redis final : public fake_server {
 public:
  inline static const std::string silence{};
  inline static const std::string hang_up{"\1"};

  fake_redis() { begin(); }
  ~fake_redis() override { end(); }

  std::string url(std::string_view login = {}) const {
    return fmt::format("redis://{}127.0.0.1:{}", login, port());
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

  void serve(int fd) override {
    resp::frame_scanner framing;
    std::string unread;
    for (;;) {
      const auto frame = framing.next(unread);
      if (!frame) return;
      if (frame->length == 0) {
        if (!receive(fd, unread)) return;
        continue;
      }
      std::string_view bytes{unread.data(), frame->length};
      const auto command = resp::take(bytes);
      if (!command || command->items.empty()) return;
      const auto reply = reply_to(std::string{command->items.front().text});
      unread.erase(0, frame->length);
      if (reply == hang_up) return;
      if (!send(fd, reply)) return;
    }
  }

  std::map<std::string, std::string> answers_;
  std::map<std::string, std::size_t> asked_;
};

}  // namespace holdfast::testing
