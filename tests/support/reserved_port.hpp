// A TCP port of the loopback that no other process gets, while a server of ours comes and goes on it.
//
// Bound without SO_REUSEADDR, so the kernel picks a port that is really free; with it from then on, so a server that
// sets it too (all do) may bind beside us, for as long as we do not listen. While no server listens, connecting to it
// is refused. Without this a port found free can be taken, by a test next door or by any outgoing connection, before
// the server starts, or starts again.
#pragma once

#include <cstdint>

namespace holdfast::testing {

class reserved_port {
 public:
  reserved_port();
  reserved_port(const reserved_port&) = delete;
  reserved_port& operator=(const reserved_port&) = delete;
  ~reserved_port();
  std::uint16_t number() const noexcept { return number_; }

 private:
  int socket_ = -1;
  std::uint16_t number_ = 0;
};

}  // namespace holdfast::testing
