// Clients of `holdfast serve` as other people write them: a socket, a request, an answer.
#pragma once

#include "support/wait_until.hpp"

#include <holdfast/types.hpp>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace holdfast::testing {

// ---- text

inline std::string http_request(std::string_view method, std::string_view target,
                                std::string_view body = {}, std::string_view headers = {}) {
  auto out = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}", method, target, headers);
  if (!body.empty())
    out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  return out.append("\r\n").append(body);
}

inline std::string acquire_request(std::string_view name, std::string_view body) {
  return http_request("POST", fmt::format("/v1/locks/{}:acquire", name), body);
}

inline std::string acquire_body(nanoseconds wait, nanoseconds ttl, std::string_view request = {}) {
  const auto ms = [](nanoseconds length) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(length).count();
  };
  auto out = fmt::format(R"({{"wait":"{}ms","ttl":"{}ms")", ms(wait), ms(ttl));
  if (!request.empty()) out += fmt::format(R"(,"request_id":"{}")", request);
  return out += '}';
}

// Of a JSON object of one line: the text, or the number, of a field. Empty, 0: it has none.
inline std::string text_in(std::string_view json, std::string_view field) {
  const auto head = fmt::format("\"{}\":\"", field);
  const auto at = json.find(head);
  if (at == std::string_view::npos) return {};
  const auto begin = at + head.size();
  return std::string{json.substr(begin, json.find('"', begin) - begin)};
}

inline std::uint64_t number_in(std::string_view json, std::string_view field) {
  const auto head = fmt::format("\"{}\":", field);
  const auto at = json.find(head);
  std::uint64_t out = 0;
  if (at != std::string_view::npos)
    std::from_chars(json.data() + at + head.size(), json.data() + json.size(), out);
  return out;
}

// Of an answer: how long its head is, and its body; nothing while it is not complete. Ours all say how long they are.
struct answer_extent {
  std::size_t head = 0, body = 0;
};
inline std::optional<answer_extent> extent_of(std::string_view bytes) {
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  constexpr std::string_view header = "Content-Length: ";
  const auto at = bytes.substr(0, end).find(header);
  std::size_t length = 0;
  if (at != std::string_view::npos)
    std::from_chars(bytes.data() + at + header.size(), bytes.data() + end, length);
  if (bytes.size() < end + 4 + length) return std::nullopt;
  return answer_extent{end + 4, length};
}

inline int status_of(std::string_view bytes) {
  int out = 0;
  if (bytes.size() > 12) std::from_chars(bytes.data() + 9, bytes.data() + 12, out);
  return out;
}

// ---- sockets

// Thousands of them need more files than most shells allow at first. Returns how many there may be now.
inline std::size_t allow_many_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_NOFILE, &files);
  return static_cast<std::size_t>(files.rlim_cur);
}

inline int connect_to(std::uint16_t port, int kind = SOCK_STREAM | SOCK_CLOEXEC) {
  const int made = ::socket(AF_INET, kind, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (made >= 0 && ::connect(made, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 &&
      errno != EINPROGRESS) {
    ::close(made);
    return -1;
  }
  const int on = 1;
  if (made >= 0) ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return made;
}

struct said {
  int status = 0;  // 0: no answer, or not all of it
  std::string head, body;
  std::string text(std::string_view field) const { return text_in(body, field); }
  std::uint64_t number(std::string_view field) const { return number_in(body, field); }
  explicit operator bool() const noexcept { return status != 0; }
};

// One kept-alive connection, made when it is needed, and made anew after a failure. It asks nothing twice by itself.
class http_line {
 public:
  explicit http_line(std::uint16_t port, nanoseconds limit = patience, std::string headers = {})
      : port_(port), limit_(limit), headers_(std::move(headers)) {}
  http_line(http_line&& other) noexcept
      : port_(other.port_),
        limit_(other.limit_),
        headers_(std::move(other.headers_)),
        socket_(std::exchange(other.socket_, -1)) {}
  http_line& operator=(http_line&&) = delete;
  ~http_line() { drop(); }

  said ask(std::string_view method, std::string_view target, std::string_view body = {}) {
    if (!send(http_request(method, target, body, headers_))) return {};
    return hear();
  }
  said acquire(std::string_view name, nanoseconds wait, nanoseconds ttl,
               std::string_view request = {}) {
    return ask("POST", fmt::format("/v1/locks/{}:acquire", name), acquire_body(wait, ttl, request));
  }
  said renew(std::string_view lease) {
    return ask("POST", fmt::format("/v1/leases/{}:renew", lease), "{}");
  }
  said release(std::string_view lease) {
    return ask("DELETE", fmt::format("/v1/leases/{}", lease));
  }

  bool send(std::string_view bytes) {
    if (socket_ < 0) open();
    while (socket_ >= 0 && !bytes.empty()) {
      const auto count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) {
        drop();
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return socket_ >= 0;
  }
  said hear() {
    std::string bytes;
    auto extent = extent_of(bytes);
    while (!extent) {
      if (!receive(bytes)) return {};
      extent = extent_of(bytes);
    }
    said out{status_of(bytes), bytes.substr(0, extent->head),
             bytes.substr(extent->head, extent->body)};
    if (out.head.find("Connection: close") != std::string::npos) drop();
    return out;
  }
  // More of what comes; false: the connection has ended, or nothing comes in time.
  bool receive(std::string& to) {
    std::array<char, 16384> some;  // NOLINT: filled by recv
    const auto count = socket_ < 0 ? -1 : ::recv(socket_, some.data(), some.size(), 0);
    if (count <= 0) {
      drop();
      return false;
    }
    to.append(some.data(), static_cast<std::size_t>(count));
    return true;
  }
  // Does something come within that time?
  bool comes(std::chrono::milliseconds within) const {
    pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, static_cast<int>(within.count())) > 0;
  }
  // Until the text has come, in all that was heard.
  bool hear_until(std::string& heard, std::string_view text) {
    while (heard.find(text) == std::string::npos)
      if (!receive(heard)) return false;
    return true;
  }
  // As much as the other side takes.
  bool send_some(std::string_view bytes) {
    if (socket_ < 0) open();
    return socket_ >= 0 &&
           ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  }
  // These two beside each other, each on a thread of its own: a client that goes on sending whatever it is told. The
  // first one does not open, nor close; the second returns the status of what it was told, 0 for nothing.
  bool send_on(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  int hear_on() const {
    std::string heard;
    std::array<char, 4096> some;  // NOLINT: filled by recv
    for (;;) {
      const auto count = ::recv(socket_, some.data(), some.size(), 0);
      if (count <= 0) return status_of(heard);
      heard.append(some.data(), static_cast<std::size_t>(count));
    }
  }
  void end_output() const { ::shutdown(socket_, SHUT_WR); }
  // Nothing that arrives is heard or acknowledged any more, as if a cable were pulled: a filter throws it away.
  bool go_deaf() const {
    sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog filter{1, &nothing};
    return ::setsockopt(socket_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
  }
  bool is_open() const noexcept { return socket_ >= 0; }
  void drop() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  // With a reset, as a client that crashed.
  void reset() {
    const linger at_once{1, 0};
    if (socket_ >= 0) ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    drop();
  }

 private:
  void open() {
    socket_ = connect_to(port_);
    if (socket_ < 0) return;
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(limit_).count();
    const timeval limit{.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }

  std::uint16_t port_;
  nanoseconds limit_;
  std::string headers_;
  int socket_ = -1;
};

// ---- many

// Thousands of connections on the thread that looks after them. Each sends what it was given; what comes is counted,
// and thrown away unless it is the last.
class http_crowd {
 public:
  explicit http_crowd(std::uint16_t port) : port_(port), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
  http_crowd(const http_crowd&) = delete;
  http_crowd& operator=(const http_crowd&) = delete;
  ~http_crowd() {
    for (const auto& one : all_)
      if (one.socket >= 0) ::close(one.socket);
    ::close(epoll_);
  }

  // `marks`: what it shall count in all that comes to this one, an answer's status line or the name of an event.
  void add(std::string bytes, std::string_view mark) {
    auto& one = all_.emplace_back();
    one.out = std::move(bytes);
    one.mark = mark;
    one.socket = connect_to(port_, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (one.socket < 0) throw std::runtime_error("no more sockets");
    epoll_event what{};
    what.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    what.data.u64 = all_.size() - 1;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, one.socket, &what);
  }
  std::size_t size() const noexcept { return all_.size(); }
  std::size_t marks() const noexcept { return marks_; }    // of all together
  std::size_t marked() const noexcept { return marked_; }  // those that have seen their mark
  std::size_t ended() const noexcept { return ended_; }    // connections
  std::size_t statuses(int which) const {
    return which >= 0 && which < 600 ? statuses_[static_cast<std::size_t>(which)] : 0;
  }
  std::size_t answers() const noexcept { return answers_; }
  // For messages.
  std::string story() const {
    auto out =
        fmt::format("{} connections, {} ended, {} marks by {};", size(), ended_, marks_, marked_);
    for (std::size_t i = 0; i < statuses_.size(); ++i)
      if (statuses_[i] > 0) out += fmt::format(" {} x {}", statuses_[i], i);
    return out;
  }

  // Sends and reads until the condition is true.
  template <class Condition>
  bool run(Condition&& enough, nanoseconds limit = 3 * patience) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!enough()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      turn(10ms);
    }
    return true;
  }

  // Sends and reads what can be sent and read, once.
  void turn(std::chrono::milliseconds wait) {
    std::array<epoll_event, 512> events;  // NOLINT: filled by epoll_wait
    const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                               static_cast<int>(wait.count()));
    for (int i = 0; i < n; ++i) {
      auto& one = all_[events[static_cast<std::size_t>(i)].data.u64];
      const auto what = events[static_cast<std::size_t>(i)].events;
      if ((what & EPOLLOUT) != 0) write(one, events[static_cast<std::size_t>(i)].data.u64);
      if ((what & ~std::uint32_t{EPOLLOUT}) != 0) read(one);
    }
  }

 private:
  struct member {
    int socket = -1;
    std::string out, tail;
    std::string_view mark;
    bool has_seen = false;
  };

  void write(member& one, std::uint64_t which) {
    while (!one.out.empty()) {
      const auto count = ::send(one.socket, one.out.data(), one.out.size(), MSG_NOSIGNAL);
      if (count < 0) return;
      one.out.erase(0, static_cast<std::size_t>(count));
    }
    epoll_event what{};
    what.events = EPOLLIN | EPOLLRDHUP;
    what.data.u64 = which;
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, one.socket, &what);
  }
  void read(member& one) {
    std::array<char, 65536> some;  // NOLINT: filled by recv
    const auto count = ::recv(one.socket, some.data(), some.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      ::close(std::exchange(one.socket, -1));
      ++ended_;
      return;
    }
    one.tail.append(some.data(), static_cast<std::size_t>(count));
    count_in(one);
  }
  // What may be the beginning of a mark is kept for the next time.
  void count_in(member& one) {
    constexpr std::string_view line = "HTTP/1.1 ";
    const std::string_view text = one.tail;
    std::size_t done = text.size() > 32 ? text.size() - 32 : 0;
    for (auto at = text.find(line); at != std::string_view::npos; at = text.find(line, at + 1)) {
      if (at + 12 > text.size()) break;
      ++statuses_[static_cast<std::size_t>(std::clamp(status_of(text.substr(at)), 0, 599))];
      ++answers_;
      done = std::max(done, at + 12);
    }
    for (auto at = text.find(one.mark); !one.mark.empty() && at != std::string_view::npos;
         at = text.find(one.mark, at + 1)) {
      ++marks_;
      if (!std::exchange(one.has_seen, true)) ++marked_;
      done = std::max(done, at + one.mark.size());
    }
    one.tail.erase(0, done);
  }

  const std::uint16_t port_;
  const int epoll_;
  std::deque<member> all_;
  std::size_t marks_ = 0, marked_ = 0, ended_ = 0, answers_ = 0;
  std::array<std::size_t, 600> statuses_{};
};

}  // namespace holdfast::testing
