// Plain, blocking connections to a server on the loopback of this place.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::testing {

class loopback_connection {
 public:
  // `limit`: how long the server may be silent.
  loopback_connection(std::uint16_t port, std::chrono::milliseconds limit);
  loopback_connection(const loopback_connection&) = delete;
  loopback_connection& operator=(const loopback_connection&) = delete;
  ~loopback_connection();

  bool is_open() const noexcept { return is_open_; }
  bool send(std::string_view bytes) const;

  enum class received { something, end, failure };  // failure: reset, or silent for too long
  received receive(std::string& to) const;          // appends what has arrived

 private:
  int socket_;
  bool is_open_ = false;
};

// One question over a connection of its own: all that the server sends until it closes. Empty when it is silent for
// `limit` in between.
std::string ask_loopback(std::uint16_t port, std::string_view question,
                         std::chrono::milliseconds limit = std::chrono::seconds{2});

// Does something listen there?
bool accepts_connections(std::uint16_t port);

}  // namespace holdfast::testing
