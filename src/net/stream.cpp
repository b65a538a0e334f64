#include "net/stream.hpp"

#include "net/tls.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace holdfast::net {

namespace {

using direction = io_result::direction;

io_result outcome(ssize_t moved, direction wanted) {
  if (moved > 0) return io_result::moved(static_cast<std::size_t>(moved));
  if (moved == 0) return io_result::end();
  if (means_again(errno)) return io_result::blocked(wanted);
  return io_result::failure(std::strerror(errno));
}

std::string text_of(const sockaddr* where, socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  constexpr int numeric = NI_NUMERICHOST | NI_NUMERICSERV;
  if (getnameinfo(where, length, host, sizeof host, port, sizeof port, numeric) != 0) return "?";
  return where->sa_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                      : fmt::format("{}:{}", host, port);
}

result<std::vector<endpoint>> ask(const std::string& host, std::uint16_t port, int flags,
                                  int& code) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
  if (code != 0) {
    return error{errc::unavailable,
                 fmt::format("the host name \"{}\" cannot be resolved: {}", host,
                             code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code))};
  }
  std::vector<endpoint> found;
  for (const auto* entry = first; entry != nullptr; entry = entry->ai_next) {
    auto& to = found.emplace_back();
    to.length = std::min<socklen_t>(entry->ai_addrlen, sizeof to.where);
    std::memcpy(&to.where, entry->ai_addr, to.length);
    to.text = text_of(entry->ai_addr, to.length);
  }
  freeaddrinfo(first);
  return found;
}

result<std::vector<endpoint>> unix_endpoint(const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) {
    return error{errc::misconfigured, fmt::format("the socket path {} is longer than {} bytes",
                                                  path, sizeof to.sun_path - 1)};
  }
  std::memcpy(to.sun_path, path.data(), path.size());
  endpoint made;
  std::memcpy(&made.where, &to, sizeof to);
  made.length = sizeof to;
  made.text = path;
  return std::vector{made};
}

// What the kernel can find out about a dead peer by itself, it shall find out within a minute. All of it is a
// convenience, so failures are ignored.
void tune(int fd) noexcept {
  const auto set = [fd](int level, int option, int value) {
    static_cast<void>(setsockopt(fd, level, option, &value, sizeof value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Connecting to a free port of the own host, the kernel may pick the very same port as the source and connect the
// socket to itself: it would then answer every request with that request.
bool talks_to_itself(int fd) noexcept {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) return false;
  const bool internet = own.ss_family == AF_INET || own.ss_family == AF_INET6;
  return internet && own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

}  // namespace

bool means_again(int number) noexcept { return number == EAGAIN || number == EINTR; }

std::optional<result<std::vector<endpoint>>> endpoints_without_lookup(const address& of) {
  if (of.is_unix) return unix_endpoint(of.host);
  int code = 0;
  auto found = ask(of.host, of.port, AI_NUMERICHOST, code);
  if (code == EAI_NONAME) return std::nullopt;
  return found;
}

result<std::vector<endpoint>> look_up(const std::string& host, std::uint16_t port) {
  int code = 0;
  return ask(host, port, 0, code);
}

stream::stream(int fd) : fd_(fd) {}

stream::~stream() { ::close(fd_); }

result<std::unique_ptr<stream>> stream::open(const address& where, const endpoint& to) {
  const int fd = ::socket(to.where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return error{errc::unavailable,
                 fmt::format("no socket is to be had: {}", std::strerror(errno))};
  std::unique_ptr<stream> made{new stream{fd}};
  if (to.where.ss_family != AF_UNIX) tune(fd);
  if (where.use_tls) {
    auto session = tls_session::make(where.tls, where.host, fd);
    if (!session) return std::move(session).error();
    made->tls_ = std::move(*session);
  }
  const int code = ::connect(fd, reinterpret_cast<const sockaddr*>(&to.where), to.length);
  if (code != 0 && errno != EINPROGRESS && errno != EINTR)
    return error{errc::unavailable, std::strerror(errno)};
  return made;
}

std::optional<io_result> stream::finish_connecting() const {
  pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, 0) <= 0) return io_result::blocked(direction::write);
  int failure = 0;
  socklen_t length = sizeof failure;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &failure, &length) != 0) failure = errno;
  if (failure == 0 && talks_to_itself(fd_)) failure = ECONNREFUSED;
  if (failure != 0) return io_result::failure(std::strerror(failure));
  return std::nullopt;
}

io_result stream::advance() {
  if (!connected_) {
    if (auto waiting = finish_connecting()) return *waiting;
    connected_ = true;
  }
  return tls_ ? tls_->handshake() : io_result::moved(0);
}

io_result stream::read(std::span<char> into) {
  if (tls_) return tls_->read(into);
  return outcome(::recv(fd_, into.data(), into.size(), MSG_DONTWAIT), direction::read);
}

io_result stream::write(std::string_view bytes) {
  if (tls_) return tls_->write(bytes);
  return outcome(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
                 direction::write);
}

void stream::shutdown() noexcept {
  if (tls_) tls_->send_close_notify();
  ::shutdown(fd_, SHUT_RDWR);
}

}  // namespace holdfast::net
