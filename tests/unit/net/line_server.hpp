// A loopback server for transport tests. Requests and answers are lines; a line that begins with '!' is a push.
//
//   line_server server{[](peer& client) {
//     while (auto line = client.read_line()) client.write(*line + "\n");
//   }};
//
// Every connection gets the script on a thread of its own, and its number from 1. Going away ends all of them.
#pragma once

#include "net/channel.hpp"

#include "support/wait_until.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace holdfast::testing {

class peer {
 public:
  peer(int fd, int which) : number(which), fd_(fd) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;
  ~peer() { ::close(fd_); }

  // Nothing when the client or the server is gone.
  std::optional<std::string> read_line() {
    for (;;) {
      if (const auto end = unread_.find('\n'); end != std::string::npos) {
        auto line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      char some[65536];
      const auto got = ::recv(fd_, some, sizeof some, 0);
      if (got <= 0) return std::nullopt;
      unread_.append(some, static_cast<std::size_t>(got));
    }
  }
  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void echo() {
    while (auto line = read_line())
      if (!write(*line + "\n")) return;
  }
  // Ends the connection with a reset instead of an orderly end.
  void reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  int descriptor() const { return fd_; }
  void end() { ::shutdown(fd_, SHUT_RDWR); }

  const int number;

 private:
  const int fd_;
  std::string unread_;
};

class line_server {
 public:
  using script = std::function<void(peer&)>;

  explicit line_server(
      script what = [](peer& client) { client.echo(); }, std::string path = {})
      : script_(std::move(what)), path_(std::move(path)) {
    open();
    acceptor_ = std::thread{[this] { accept_all(); }};
  }
  line_server(const line_server&) = delete;
  line_server& operator=(const line_server&) = delete;
  ~line_server() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    {
      std::lock_guard locked{guard_};
      for (auto& one : clients_)
        if (const auto still = one.client.lock()) still->end();
    }
    for (auto& one : clients_) one.worker.join();
  }

  std::uint16_t port() const { return port_; }
  int connections() const { return connections_; }
  const std::atomic<bool>& stopping() const { return stopping_; }

 private:
  struct session {
    std::weak_ptr<peer> client;
    std::thread worker;
  };

  void open() {
    listener_ = ::socket(path_.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_storage where{};
    socklen_t length = sizeof(sockaddr_in);
    if (path_.empty()) {
      auto& at = reinterpret_cast<sockaddr_in&>(where);
      at.sin_family = AF_INET;
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      auto& at = reinterpret_cast<sockaddr_un&>(where);
      at.sun_family = AF_UNIX;
      std::memcpy(at.sun_path, path_.data(), path_.size());
      length = sizeof at;
    }
    auto* const generic = reinterpret_cast<sockaddr*>(&where);
    if (::bind(listener_, generic, length) != 0 || ::listen(listener_, 64) != 0)
      throw std::runtime_error("no test server");
    if (!path_.empty()) return;
    ::getsockname(listener_, generic, &length);
    port_ = ntohs(reinterpret_cast<sockaddr_in&>(where).sin_port);
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      auto client = std::make_shared<peer>(fd, ++connections_);
      std::lock_guard locked{guard_};
      auto& one = clients_.emplace_back();
      one.client = client;
      one.worker = std::thread{[this, client]() mutable {
        script_(*client);
        client.reset();
      }};
    }
  }

  const script script_;
  const std::string path_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  std::mutex guard_;
  std::list<session> clients_;
};

// A line is a frame; one that begins with '?' is nonsense.
class line_framing final : public net::framing {
 public:
  result<frame> next(std::string_view bytes) override {
    if (bytes.starts_with('?')) return error{errc::protocol, "a line begins with a question mark"};
    const auto end = bytes.find('\n');
    if (end == std::string_view::npos) return frame{};
    return frame{.length = end + 1, .push = bytes.starts_with('!')};
  }
};

inline net::channel_options to_port(std::uint16_t port) {
  net::channel_options options;
  options.where.host = "127.0.0.1";
  options.where.port = port;
  options.description = "line://127.0.0.1:" + std::to_string(port);
  options.make_framing = [] { return std::make_unique<line_framing>(); };
  return options;
}

inline net::channel_options to(const line_server& server) { return to_port(server.port()); }

// A port that nobody listens on.
inline std::uint16_t free_port() { return line_server{}.port(); }

inline net::limits within(nanoseconds length, std::stop_token stop = {}) {
  return {std::chrono::steady_clock::now() + length, std::move(stop)};
}

// One exchange of one line each way.
inline result<std::string> ask(net::channel& on, const std::string& line,
                               const net::limits& until = within(patience)) {
  std::string answer;
  const auto generation = on.exchange(line + "\n", 1, until, answer);
  if (!generation) return generation.error();
  if (!answer.ends_with('\n')) return error{errc::protocol, "not a line: " + answer};
  answer.pop_back();
  return answer;
}

// Opened once; everybody waits for it.
class gate {
 public:
  void open() { open_ = true; }
  bool is_open() const { return open_; }
  // For a server's script: also ends with the server.
  void wait(const std::atomic<bool>* stopping = nullptr) const {
    wait_until([&] { return open_.load() || (stopping != nullptr && stopping->load()); });
  }

 private:
  std::atomic<bool> open_{false};
};

}  // namespace holdfast::testing
