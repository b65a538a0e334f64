// One thread and one poll loop. Everything but the waiting happens under the mutex and never blocks, so a switch holds
// from the moment that its setter got the mutex; setters wait for one round more, for what only the thread may touch.
#include "support/fault_proxy.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace holdfast::testing {

namespace {

using std::chrono::steady_clock;

// Per direction; then the sender has to wait, as with any network.
constexpr std::size_t most_queued = std::size_t{1} << 20U;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::system_category(), what);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

int new_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

void switch_on(int socket, int level, int option) {
  const int yes = 1;
  ::setsockopt(socket, level, option, &yes, sizeof yes);
}

void close_with_reset(int socket) {
  const linger at_once{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(socket);
}

bool try_again() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

fault_proxy::fault_proxy(std::uint16_t upstream)
    : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), upstream_(upstream) {
  if (wake_ < 0) fail("eventfd");
  listen();
  thread_ = std::thread{[this] { run(); }};
}

fault_proxy::~fault_proxy() {
  apply([this] { done_ = true; });
  thread_.join();
  ::close(wake_);
}

std::string fault_proxy::url(std::string_view scheme) const {
  return fmt::format("{}://127.0.0.1:{}", scheme, port());
}

void fault_proxy::delay(direction of, std::chrono::nanoseconds by) {
  apply([&] { now_.delays.at(of) = by; });
}
void fault_proxy::drop(direction of, bool on) {
  apply([&] { now_.drops.at(of) = on; });
}
void fault_proxy::hold(direction of, bool on) {
  apply([&] { now_.holds.at(of) = on; });
}
void fault_proxy::strand() {
  apply([&] {
    for (auto& c : connections_) c.streams[requests].is_stranded = true;
  });
}
void fault_proxy::freeze(bool on) {
  apply([&] { now_.frozen = on; });
}
void fault_proxy::trickle(bool on) {
  apply([&] { now_.trickling = on; });
}
void fault_proxy::refuse(bool on) {
  apply([&] { now_.refusing = on; });
}
void fault_proxy::cut() {
  apply([&] { cut_now_ = true; });
}
void fault_proxy::lead_to(std::uint16_t upstream) {
  apply([&] { upstream_ = upstream; });
}
void fault_proxy::cut_after(std::size_t bytes_of_reply) {
  apply([&] { now_.cut_after = bytes_of_reply; });
}
void fault_proxy::heal() {
  apply([&] {
    now_ = faults{};
    for (auto& c : connections_) c.streams[requests].is_stranded = false;
  });
}

std::size_t fault_proxy::connections() const {
  const std::lock_guard lock{guard_};
  return accepted_;
}
std::size_t fault_proxy::open() const {
  const std::lock_guard lock{guard_};
  return connections_.size();
}
std::size_t fault_proxy::bytes(direction of) const {
  const std::lock_guard lock{guard_};
  return arrived_.at(of);
}

void fault_proxy::apply(const std::function<void()>& change) {
  std::unique_lock lock{guard_};
  change();
  const auto mine = ++asked_;
  const std::uint64_t count = 1;
  static_cast<void>(!::write(wake_, &count, sizeof count));
  applied_.wait(lock, [&] { return rounds_ >= mine; });
}

void fault_proxy::run() {
  std::unique_lock lock{guard_};
  for (;;) {
    adjust_listener();
    if (cut_now_ || done_) {
      for (auto& c : connections_) reset(c);
      sweep();
      cut_now_ = false;
    }
    rounds_ = asked_;
    applied_.notify_all();
    if (done_) break;

    auto polled = to_poll();
    timespec wait{};
    const auto due = next_due();
    if (due) {
      const auto left = std::max(std::chrono::nanoseconds{*due - steady_clock::now()},
                                 std::chrono::nanoseconds{0});
      wait = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    }
    lock.unlock();
    ::ppoll(polled.data(), polled.size(), due ? &wait : nullptr, nullptr);
    lock.lock();

    std::uint64_t ignored = 0;
    static_cast<void>(!::read(wake_, &ignored, sizeof ignored));
    accept();
    for (auto& c : connections_) serve(c);
    sweep();
  }
  if (listener_ >= 0) ::close(listener_);
}

void fault_proxy::listen() {
  listener_ = new_socket();
  if (listener_ < 0) fail("socket");
  switch_on(listener_, SOL_SOCKET, SO_REUSEADDR);  // beside the reservation
  const auto address = loopback(port());
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0) {
    fail("listen");
  }
}

void fault_proxy::adjust_listener() {
  if (now_.refusing && listener_ >= 0) {
    ::close(listener_);
    listener_ = -1;
  }
  if (!now_.refusing && listener_ < 0) listen();
}

void fault_proxy::accept() {
  if (listener_ < 0 || now_.frozen) return;
  for (;;) {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) return;
    ++accepted_;
    const int server = new_socket();
    for (const int socket : {client, server}) switch_on(socket, IPPROTO_TCP, TCP_NODELAY);
    // Not waited for: until it is connected the socket takes nothing, and a refusal shows as an error on it.
    const auto address = loopback(upstream_);
    ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    auto& c = connections_.emplace_back();
    c.client = client;
    c.server = server;
    c.streams[requests] = {.which = requests, .from = client, .to = server};
    c.streams[replies] = {.which = replies, .from = server, .to = client};
  }
}

bool fault_proxy::holds(const stream& s) const {
  return now_.frozen || now_.holds.at(s.which) || s.is_stranded;
}

bool fault_proxy::wants_input(const stream& s) const {
  return !s.has_ended && !now_.frozen && s.queued < most_queued;
}

std::vector<pollfd> fault_proxy::to_poll() const {
  std::vector<pollfd> out{{wake_, POLLIN, 0}};
  if (listener_ >= 0 && !now_.frozen) out.push_back({listener_, POLLIN, 0});
  for (const auto& c : connections_) {
    for (const auto& s : c.streams) {
      if (wants_input(s)) out.push_back({s.from, POLLIN, 0});
      if (s.is_blocked && !holds(s)) out.push_back({s.to, POLLOUT, 0});
    }
  }
  return out;
}

// When there is something to do even if nothing arrives.
std::optional<fault_proxy::time_point> fault_proxy::next_due() const {
  std::optional<time_point> first;
  for (const auto& c : connections_) {
    for (const auto& s : c.streams) {
      if (s.pending.empty() || s.is_blocked || holds(s)) continue;
      first = std::min(first.value_or(time_point::max()), s.pending.front().due);
    }
  }
  return first;
}

void fault_proxy::serve(connection& c) {
  for (auto& s : c.streams) {
    if (c.is_over) return;
    if ((wants_input(s) && !receive(s)) || (!holds(s) && !deliver(s))) reset(c);
  }
  const auto& [to, fro] = c.streams;
  if (to.has_ended && fro.has_ended && to.pending.empty() && fro.pending.empty()) {
    c.is_over = true;
    ::close(c.client);
    ::close(c.server);
  }
}

// False when the connection is broken.
bool fault_proxy::receive(stream& s) {
  std::array<char, 65536> buffer;  // NOLINT: filled by recv
  const auto count = ::recv(s.from, buffer.data(), buffer.size(), 0);
  if (count < 0) return try_again();
  s.is_lossy = s.is_lossy || now_.drops.at(s.which);
  if (count == 0) {
    s.has_ended = true;
    return true;
  }
  const auto size = static_cast<std::size_t>(count);
  arrived_.at(s.which) += size;
  if (s.is_lossy) return true;
  s.pending.push_back(
      {steady_clock::now() + now_.delays.at(s.which), std::string{buffer.data(), size}});
  s.queued += size;
  return true;
}

// All that is due, or one byte when it trickles. False when the connection is broken, or cut.
bool fault_proxy::deliver(stream& s) {
  s.is_blocked = false;
  while (!s.pending.empty() && s.pending.front().due <= steady_clock::now() && !s.is_blocked) {
    if (!deliver_some(s)) return false;
    if (now_.trickling) break;
  }
  if (s.has_ended && !s.is_lossy && !s.end_passed_on && s.pending.empty()) {
    s.end_passed_on = true;
    ::shutdown(s.to, SHUT_WR);
  }
  return true;
}

// How much of the first chunk may go at once.
std::size_t fault_proxy::portion(const stream& s) const {
  auto size = s.pending.front().bytes.size();
  if (now_.trickling) size = std::min<std::size_t>(size, 1);
  if (s.which == replies && now_.cut_after) size = std::min(size, *now_.cut_after);
  return size;
}

bool fault_proxy::deliver_some(stream& s) {
  auto& bytes = s.pending.front().bytes;
  if (const auto size = portion(s); size > 0) {
    const auto count = ::send(s.to, bytes.data(), size, MSG_NOSIGNAL);
    if (count < 0) {
      s.is_blocked = try_again();
      return s.is_blocked;
    }
    const auto sent = static_cast<std::size_t>(count);
    bytes.erase(0, sent);
    s.queued -= sent;
    if (s.which == replies && now_.cut_after) *now_.cut_after -= sent;
  }
  if (s.which == replies && now_.cut_after == std::size_t{0}) {
    now_.cut_after.reset();
    return false;
  }
  if (bytes.empty()) s.pending.pop_front();
  return true;
}

void fault_proxy::reset(connection& c) {
  if (c.is_over) return;
  c.is_over = true;
  close_with_reset(c.client);
  close_with_reset(c.server);
}

void fault_proxy::sweep() {
  connections_.remove_if([](const connection& c) { return c.is_over; });
}

}  // namespace holdfast::testing
