// A server on the loopback that says whatever a test wants it to. What it understands is up to the one that derives.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace holdfast::testing {

class fake_server {
 public:
  fake_server(const fake_server&) = delete;
  fake_server& operator=(const fake_server&) = delete;
  virtual ~fake_server() = default;

  std::uint16_t port() const noexcept { return port_; }

 protected:
  fake_server() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof where;
    auto* const generic = reinterpret_cast<sockaddr*>(&where);
    if (::bind(listener_, generic, length) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, generic, &length) != 0)
      throw std::runtime_error("no fake server");
    port_ = ntohs(where.sin_port);
  }

  // The constructor of what derives begins, and its destructor ends: connections are served in between.
  void begin() {
    acceptor_ = std::thread{[this] { accept_all(); }};
  }
  void end() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    {
      const std::lock_guard lock{guard_};
      for (const int one : open_) ::shutdown(one, SHUT_RDWR);
    }
    for (auto& one : workers_) one.join();
  }
  // Until the client goes, or the test wants it to.
  virtual void serve(int fd) = 0;

  static bool receive(int fd, std::string& to) {
    std::array<char, 16384> buffer;  // NOLINT: filled by recv
    const auto got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) return false;
    to.append(buffer.data(), static_cast<std::size_t>(got));
    return true;
  }
  static bool send(int fd, const std::string& bytes) {
    return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0;
  }

  mutable std::mutex guard_;

 private:
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

  const int listener_;
  std::uint16_t port_ = 0;
  std::list<int> open_;
  std::list<std::thread> workers_;
  std::thread acceptor_;
};

}  // namespace holdfast::testing
