#include "net/protocol.hpp"

#include <fmt/format.h>

#include <chrono>

namespace holdfast::net {

namespace {

// Unsent bytes that a server which has stopped reading may cost us.
constexpr std::size_t most_unsent = std::size_t{64} << 20U;

}  // namespace

bool passed(steady_time deadline) {
  return deadline != steady_time::max() && deadline <= std::chrono::steady_clock::now();
}

long milliseconds_since(steady_time then) {
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::steady_clock::now() - then)
      .count();
}

std::optional<error> refusal(std::string_view server, const limits& until, std::size_t unsent) {
  if (until.stop.stop_requested() || passed(until.deadline)) {
    return error{errc::unavailable,
                 fmt::format("nothing was sent to {}, because the call was {} before it began",
                             server, until.stop.stop_requested() ? "cancelled" : "out of time")};
  }
  if (unsent > most_unsent) {
    return error{errc::unavailable,
                 fmt::format("{} does not read: {} MiB of requests are still to be sent", server,
                             unsent >> 20U)};
  }
  return std::nullopt;
}

error unreachable(std::string_view server, errc code, std::string_view why) {
  return {code, fmt::format("{} cannot be reached: {}", server, why)};
}

}  // namespace holdfast::net
