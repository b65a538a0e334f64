// The transport: sockets, TLS, HTTP/1.1. Everything of Asio and Beast is in listener.cpp.
//
// A connection is two coroutines on the loop: one that always reads, so that it is noticed when a client goes away, and
// one that writes while there is something to write. No thread per client, no timer per client.
#pragma once

#include "http.hpp"
#include "options.hpp"

#include <holdfast/result.hpp>

#include <cstdint>
#include <functional>
#include <memory>

namespace holdfast::server {

class listener {
 public:
  virtual ~listener() = default;
  // Binds and listens. misconfigured for bad certificates, unavailable for an address that cannot be had.
  static result<std::unique_ptr<listener>> open(const options& configured);

  virtual server::loop& loop() noexcept = 0;
  virtual std::uint16_t port() const noexcept = 0;
  virtual std::size_t connections() const noexcept = 0;
  // Serves until end(). `on_signal` is called on the loop for SIGTERM and SIGINT, each time.
  virtual void run(handler serve, std::function<void()> on_signal) = 0;
  // No more connections; those that are there end with their answer, and run() returns when all have ended, or after a
  // few seconds.
  virtual void end() = 0;
};

}  // namespace holdfast::server
