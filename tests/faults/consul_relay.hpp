// An agent between a client and a real Consul that counts what is asked, and answers some of it itself.
//
//   consul_relay relay{server.port()};
//   client::open(relay.url());
//   relay.answer_with([](auto& asked) { return consul_relay::reply(429, "slow down"); });
//
// It speaks as much of HTTP/1.1 as clients do here: lengths are given, nothing is sent before an answer has come.
#pragma once

#include "faults/fake_server.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace holdfast::testing {

class consul_relay final : public fake_server {
 public:
  struct question {
    std::string method, target, rest;  // of the head, with the line end before and after it
    std::string body;
    // The value of a parameter of the target; empty: none, or empty.
    std::string parameter(std::string_view name) const {
      for (auto at = target.find_first_of("?&"); at != std::string::npos;
           at = target.find('&', at + 1)) {
        const auto word = std::string_view{target}.substr(
            at + 1, std::min(target.find('&', at + 1), target.size()) - at - 1);
        if (word.starts_with(name) && word.substr(name.size()).starts_with('='))
          return std::string{word.substr(name.size() + 1)};
      }
      return {};
    }
    void set_parameter(std::string_view name, std::string_view value) {
      const auto old = fmt::format("{}={}", name, parameter(name));
      if (const auto at = target.find(old); at != std::string::npos)
        target.replace(at, old.size(), fmt::format("{}={}", name, value));
    }
    // A blocking query that may have to wait.
    bool blocks() const {
      return method == "GET" && parameter("index").find_first_not_of('0') != std::string::npos;
    }
  };
  // The whole answer, or nothing: then the question, as it is afterwards, is passed on.
  using answerer = std::function<std::optional<std::string>(question&)>;
  using editor = std::function<void(const question&, std::string& answer)>;

  explicit consul_relay(std::uint16_t upstream) : upstream_(upstream) { begin(); }
  ~consul_relay() override { end(); }

  std::string url() const { return fmt::format("consul://127.0.0.1:{}?lock_delay=0s", port()); }
  // From now on. Both are called on several threads.
  void answer_with(answerer act) {
    const std::lock_guard lock{guard_};
    answer_ = std::move(act);
  }
  void edit_answers(editor act) {
    const std::lock_guard lock{guard_};
    edit_ = std::move(act);
  }
  void heal() { answer_with({}), edit_answers({}); }
  std::size_t asked() const noexcept { return asked_; }
  std::size_t asked_blocking() const noexcept { return asked_blocking_; }

  static std::string reply(int status, std::string_view body, std::string_view headers = {}) {
    return fmt::format(
        "HTTP/1.1 {} Whatever\r\nContent-Type: text/plain\r\n{}Content-Length: {}\r\n\r\n{}",
        status, headers, body.size(), body);
  }
  static std::uint64_t index_in(const std::string& answer) {
    const auto at = place_of_index(answer);
    return at.second == 0 ? 0 : std::stoull(answer.substr(at.first, at.second));
  }
  static void set_index(std::string& answer, std::uint64_t index) {
    const auto at = place_of_index(answer);
    if (at.second > 0) answer.replace(at.first, at.second, std::to_string(index));
  }

 private:
  static std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  }
  // Where a header's value is in the head, and how long; nothing there: 0.
  static std::pair<std::size_t, std::size_t> place_of(const std::string& message,
                                                      std::string_view header) {
    const auto head = lower(message.substr(0, message.find("\r\n\r\n") + 2));
    const auto name = fmt::format("\r\n{}: ", header);
    const auto at = head.find(name);
    if (at == std::string::npos) return {0, 0};
    return {at + name.size(), head.find("\r\n", at + 2) - at - name.size()};
  }
  static std::pair<std::size_t, std::size_t> place_of_index(const std::string& answer) {
    return place_of(answer, "x-consul-index");
  }
  // How long the message at the beginning is; nothing while it is not complete.
  static std::optional<std::size_t> length_of(const std::string& bytes) {
    const auto head = bytes.find("\r\n\r\n");
    if (head == std::string::npos) return std::nullopt;
    const auto [at, size] = place_of(bytes, "content-length");
    const auto length = head + 4 + (size == 0 ? 0 : std::stoull(bytes.substr(at, size)));
    return bytes.size() < length ? std::nullopt : std::optional{length};
  }
  static question read(const std::string& bytes) {
    const auto line = bytes.find("\r\n"), head = bytes.find("\r\n\r\n");
    const auto first = bytes.find(' '), second = bytes.find(' ', first + 1);
    return {bytes.substr(0, first), bytes.substr(first + 1, second - first - 1),
            bytes.substr(line, head + 2 - line), bytes.substr(head + 4)};
  }

  void serve(int fd) override {
    std::string bytes;
    for (;;) {
      auto length = length_of(bytes);
      while (!length) {
        if (!receive(fd, bytes)) return;
        length = length_of(bytes);
      }
      auto asked = read(bytes.substr(0, *length));
      bytes.erase(0, *length);
      ++asked_;
      if (asked.blocks()) ++asked_blocking_;
      const auto [answer, edit] = acts();
      auto said = answer ? answer(asked) : std::nullopt;
      if (!said) {
        said = pass_on(fd, asked);
        if (!said) return;
        if (edit) edit(asked, *said);
      }
      if (!send(fd, *said)) return;
    }
  }
  std::pair<answerer, editor> acts() const {
    const std::lock_guard lock{guard_};
    return {answer_, edit_};
  }
  // Nothing: the client, or the server, has gone meanwhile.
  std::optional<std::string> pass_on(int client, const question& asked) const {
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(upstream_);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string bytes;
    // As 1.0: the answer is not cut into chunks, and ends with the connection.
    const bool sent =
        ::connect(server, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0 &&
        send(server, fmt::format("{} {} HTTP/1.0{}\r\n{}", asked.method, asked.target, asked.rest,
                                 asked.body));
    bool complete = false;
    while (sent && !complete) {
      std::array<pollfd, 2> both{pollfd{server, POLLIN, 0}, pollfd{client, POLLRDHUP, 0}};
      if (::poll(both.data(), both.size(), -1) < 0 || both[1].revents != 0) break;
      complete = !receive(server, bytes);
    }
    ::close(server);
    const auto head = bytes.find("\r\n\r\n");
    if (!complete || head == std::string::npos) return std::nullopt;
    // Of its head everything stays but how it ends.
    if (place_of(bytes, "content-length").second == 0)
      bytes.insert(head + 2, fmt::format("Content-Length: {}\r\n", bytes.size() - head - 4));
    if (const auto [at, size] = place_of(bytes, "connection"); size > 0)
      bytes.replace(at, size, "keep-alive");
    bytes.replace(0, std::string_view{"HTTP/1.0"}.size(), "HTTP/1.1");
    return bytes;
  }

  const std::uint16_t upstream_;
  answerer answer_;
  editor edit_;
  std::atomic<std::size_t> asked_{0}, asked_blocking_{0};
};

}  // namespace holdfast::testing
