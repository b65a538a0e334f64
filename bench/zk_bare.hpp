// The two requests of a lock in our own codec over a blocking socket: what no client can beat.
#pragma once

#include "harness.hpp"

#include "jute/zookeeper.hpp"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <string_view>

namespace baseline {

namespace jute = holdfast::jute;

class bare_session {
 public:
  explicit bare_session(std::uint16_t port) : socket_(connect_to(port)) {
    const int at_once = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    jute::append_connect(out_, {.timeout_ms = 30'000});
    if (jute::read_connected(exchange()).value().timeout_ms == 0)
      throw std::runtime_error("ZooKeeper gives no session.");
  }
  bare_session(const bare_session&) = delete;
  bare_session& operator=(const bare_session&) = delete;
  ~bare_session() { ::close(socket_); }

  void pair(std::string_view prefix) {
    jute::append_create(out_, ++xid_,
                        {.path = prefix, .mode = jute::create_mode::ephemeral_sequential});
    const std::string made{jute::read_created(reply()).value().path};
    jute::append_delete(out_, ++xid_, made);
    reply();
  }

  // What a four-letter word is answered with. A server that is just starting may accept it and never answer.
  static std::string four_letter(std::uint16_t port, std::string_view word) {
    const int socket = connect_to(port);
    const timeval patience{1, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    send_all(socket, word);
    std::string text;
    std::array<char, 65536> part;  // NOLINT: filled by recv
    for (ssize_t got = 0; (got = ::recv(socket, part.data(), part.size(), 0)) > 0;)
      text.append(part.data(), static_cast<std::size_t>(got));
    ::close(socket);
    return text;
  }

 private:
  static int connect_to(std::uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
      ::close(socket);
      fail("ZooKeeper cannot be reached");
    }
    return socket;
  }
  static void send_all(int socket, std::string_view bytes) {
    if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size()))
      fail("ZooKeeper does not listen");
  }

  // Sends what is to be sent; the inside of the frame that is answered.
  std::string_view exchange() {
    send_all(socket_, out_);
    out_.clear();
    in_.clear();
    std::array<char, 4096> part;  // NOLINT: filled by recv
    while (in_.size() < 4 || in_.size() < 4 + length()) {
      const auto got = ::recv(socket_, part.data(), part.size(), 0);
      if (got <= 0) fail("ZooKeeper does not answer");
      in_.append(part.data(), static_cast<std::size_t>(got));
    }
    return std::string_view{in_}.substr(4);
  }
  std::size_t length() const { return static_cast<std::size_t>(jute::reader{in_}.integer()); }
  std::string_view reply() {
    const auto got = jute::open_reply(exchange()).value();
    if (got.err != jute::code::ok)
      throw std::runtime_error(fmt::format("ZooKeeper: {}", name_of(got.err)));
    return got.rest;
  }

  int socket_;
  std::int32_t xid_ = 0;
  std::string out_, in_;
};

}  // namespace baseline
