#include "support/network_lab.hpp"

#include "support/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace holdfast::testing {

namespace {

// Interfaces, as they are called in their namespaces.
constexpr auto at_the_place = "cable";
constexpr auto at_the_hub = "switch";

// Of no interface: a frame for it is carried to all places, and dropped there.
constexpr auto unused_address = "02:00:00:00:00:99";

std::system_error failure(const std::string& what) { return {errno, std::system_category(), what}; }

// Of the calling thread. "self" would be the one of the main thread.
int own_namespace() {
  const int found = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (found < 0) throw failure("the own network namespace");
  return found;
}

// An empty one; the calling thread stays where it is.
int new_namespace() {
  const int home = own_namespace();
  if (::unshare(CLONE_NEWNET) != 0) {
    const auto why = failure("unshare");
    ::close(home);
    throw why;
  }
  const int made = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  const int reason = errno;
  if (::setns(home, CLONE_NEWNET) != 0) std::abort();  // see may_move()
  ::close(home);
  errno = reason;
  if (made < 0) throw failure("a new network namespace");
  return made;
}

// May a thread leave its namespace and return? Tried with one that is not needed if it may not: 0, or why not.
int may_move() {
  int reason = 0;
  std::thread{[&] {
    const int home = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || ::unshare(CLONE_NEWNET) != 0 || ::setns(home, CLONE_NEWNET) != 0)
      reason = errno;
    if (home >= 0) ::close(home);
  }}.join();
  return reason;
}

std::string port(std::size_t place) { return fmt::format("port{}", place); }

}  // namespace

availability network_lab::available() {
  if (!find_program("ip"))
    return {false, "ip is not in the PATH; tools/setup test installs it (iproute2)"};
  static const int refusal = may_move();
  if (refusal != 0)
    return {false, fmt::format("no network namespaces without more rights (root has them): {}",
                               std::strerror(refusal))};
  // Whatever else a kernel may lack.
  static const std::string trouble = [] {
    try {
      network_lab trial{1};
      trial.cut(0);
      return std::string{};
    } catch (const std::exception& e) {
      return fmt::format("no network can be made here: {}", e.what());
    }
  }();
  return {trouble.empty(), trouble};
}

network_lab::network_lab(std::size_t places) {
  try {
    build(places);
  } catch (...) {
    close();
    throw;
  }
}

network_lab::~network_lab() { close(); }

void network_lab::build(std::size_t places) {
  hub_ = new_namespace();
  ip(hub, "link set lo up");
  ip(hub, fmt::format("link add {} type bridge", at_the_hub));
  ip(hub, fmt::format("address add {}/24 dev {}", address(hub), at_the_hub));
  ip(hub, fmt::format("link set {} up", at_the_hub));
  for (std::size_t n = 0; n < places; ++n) lay_cable(n);
}

void network_lab::lay_cable(std::size_t n) {
  places_.push_back({.descriptor = new_namespace()});
  ip(n, "link set lo up");
  ip(n, fmt::format("link add {} type veth peer name {} netns /proc/{}/fd/{}", at_the_place,
                    port(n), ::getpid(), hub_));
  ip(n, fmt::format("address add {}/24 dev {}", address(n), at_the_place));
  ip(n, fmt::format("link set {} up", at_the_place));
  ip(hub, fmt::format("link set {} master {} up", port(n), at_the_hub));
}

// A process that still lives in a namespace keeps it; it goes with the last one.
void network_lab::close() noexcept {
  for (const auto& place : places_) ::close(place.descriptor);
  if (hub_ >= 0) ::close(hub_);
}

std::string network_lab::address(std::size_t n) const {
  return fmt::format("10.77.0.{}", n == hub ? 254 : n + 1);
}

int network_lab::descriptor(std::size_t n) const {
  return n == hub ? hub_ : places_.at(n).descriptor;
}

// ---- being there

network_lab::visit::visit(int there) : home_(own_namespace()) {
  if (::setns(there, CLONE_NEWNET) == 0) return;
  const auto why = failure("setns");
  ::close(home_);
  throw why;
}

// A thread that went on in the wrong network would test something else, unnoticed.
network_lab::visit::~visit() {
  if (::setns(home_, CLONE_NEWNET) != 0) {
    std::perror("setns");
    std::abort();
  }
  ::close(home_);
}

void network_lab::ip(std::size_t n, const std::string& words) const {
  std::vector<std::string> command{find_program("ip").value()};
  std::istringstream in{words};
  for (std::string word; in >> word;) command.push_back(word);
  const auto output = dir_.file("ip");
  const auto code = at(n, [&] { return process{command, output}.wait(); });
  if (code == 0) return;
  std::ostringstream said;
  said << std::ifstream{output}.rdbuf();
  throw std::runtime_error(fmt::format("ip {}: {}", words, code ? said.str() : "no end"));
}

// ---- cables

void network_lab::cut(std::size_t n) {
  ip(hub, fmt::format("link set {} down", port(n)));
  places_.at(n).is_cut = true;
}

void network_lab::join(std::size_t n) {
  ip(hub, fmt::format("link set {} up", port(n)));
  places_.at(n).is_cut = false;
}

void network_lab::separate(std::size_t place, std::size_t other) {
  lose_neighbour(place, other);
  lose_neighbour(other, place);
}

void network_lab::reunite(std::size_t place, std::size_t other) {
  find_neighbour(place, other);
  find_neighbour(other, place);
}

// A wrong address of the link layer that is not asked for again: what is sent there is lost on its way, as it should
// be. A route or a filter would tell the sender, or need more than ip.
void network_lab::lose_neighbour(std::size_t n, std::size_t neighbour) const {
  ip(n, fmt::format("neighbour replace {} lladdr {} dev {} nud permanent", address(neighbour),
                    unused_address, n == hub ? at_the_hub : at_the_place));
}

void network_lab::find_neighbour(std::size_t n, std::size_t neighbour) const {
  ip(n, fmt::format("neighbour del {} dev {}", address(neighbour),
                    n == hub ? at_the_hub : at_the_place));
}

}  // namespace holdfast::testing
