// The bare minimum of an HTTP client, for serve_baseline: many connections on one thread, a request at a time on
// each, and nothing done with an answer but to find where it ends and a word in it.
#pragma once

#include "harness.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <charconv>
#include <functional>
#include <memory>
#include <string_view>

namespace baseline {

struct http_answer {
  int status = 0;
  std::string_view body;
};

// The text behind `"word":"` in a JSON answer of one line.
inline std::string_view text_in(std::string_view json, std::string_view word) {
  auto at = json.find(std::string{"\""}.append(word).append("\""));
  if (at == std::string_view::npos) return {};
  at = json.find('"', json.find(':', at));
  return json.substr(at + 1, json.find('"', at + 1) - at - 1);
}

class http_connection {
 public:
  explicit http_connection(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      fail("The server cannot be reached");
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~http_connection() { ::close(socket_); }
  http_connection(const http_connection&) = delete;
  http_connection& operator=(const http_connection&) = delete;

  int socket() const noexcept { return socket_; }
  void send(std::string_view request) {
    while (!request.empty()) {
      const auto sent = ::send(socket_, request.data(), request.size(), MSG_NOSIGNAL);
      if (sent < 0) fail("A request cannot be sent");
      request.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // Reads what has come. The answer, once it is whole: good until the next call.
  bool receive(http_answer& into) {
    if (taken_ > 0) buffer_.erase(0, std::exchange(taken_, 0));
    char part[8192];
    const auto got = ::recv(socket_, part, sizeof part, 0);
    if (got <= 0) fail("A connection has ended");
    buffer_.append(part, static_cast<std::size_t>(got));
    const auto head = buffer_.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    const auto whole = head + 4 + length_in(std::string_view{buffer_}.substr(0, head));
    if (buffer_.size() < whole) return false;
    into.status = 0;
    std::from_chars(buffer_.data() + 9, buffer_.data() + 12, into.status);
    into.body = std::string_view{buffer_}.substr(head + 4, whole - head - 4);
    taken_ = whole;
    return true;
  }
  http_answer ask(std::string_view request) {
    send(request);
    http_answer out;
    while (!receive(out)) {
    }
    return out;
  }

 private:
  static std::size_t length_in(std::string_view head) {
    for (const auto* word : {"Content-Length: ", "content-length: "}) {
      const auto at = head.find(word);
      if (at == std::string_view::npos) continue;
      std::size_t out = 0;
      std::from_chars(head.data() + at + 16, head.data() + head.size(), out);
      return out;
    }
    return 0;
  }
  int socket_;
  std::string buffer_;
  std::size_t taken_ = 0;
};

inline std::string http_request(std::string_view method, std::string_view path,
                                std::string_view body = {}) {
  std::string out{method};
  out.append(" ").append(path).append(" HTTP/1.1\r\nHost: 127.0.0.1\r\n");
  if (!body.empty() || method == "POST")
    out.append("Content-Type: application/json\r\nContent-Length: ")
        .append(std::to_string(body.size()))
        .append("\r\n");
  return out.append("\r\n").append(body);
}

// Many connections, one thread. `next` is given the number of the connection and its last answer, and says what it asks
// next; nothing: it has ended.
class http_crowd {
 public:
  using on_answer = std::function<std::string(std::size_t, const http_answer&)>;

  http_crowd(std::uint16_t port, std::size_t many) : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (std::size_t i = 0; i < many; ++i) {
      all_.push_back(std::make_unique<http_connection>(port));
      epoll_event on{};
      on.events = EPOLLIN;
      on.data.u64 = i;
      if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, all_.back()->socket(), &on) != 0) fail("epoll");
    }
  }
  ~http_crowd() { ::close(epoll_); }
  http_crowd(const http_crowd&) = delete;
  http_crowd& operator=(const http_crowd&) = delete;

  std::size_t size() const noexcept { return all_.size(); }
  void send(std::size_t which, std::string_view request) { all_[which]->send(request); }
  // Until the time is over, or `enough` says so.
  void run(nanoseconds time, const on_answer& next, const std::function<bool()>& enough = {}) {
    std::array<epoll_event, 256> events;
    const auto end = steady_clock::now() + time;
    while (steady_clock::now() < end && !(enough && enough())) {
      const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 20);
      for (int i = 0; i < n; ++i) {
        const auto which = static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64);
        http_answer got;
        if (!all_[which]->receive(got)) continue;
        if (const auto more = next(which, got); !more.empty()) all_[which]->send(more);
      }
    }
  }

 private:
  int epoll_;
  std::vector<std::unique_ptr<http_connection>> all_;
};

}  // namespace baseline
