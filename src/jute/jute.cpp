#include "jute/jute.hpp"

namespace holdfast::jute {

result<frame> next_frame(std::string_view bytes, std::size_t largest) {
  if (bytes.size() < 4) return frame{};
  reader in{bytes};
  const auto length = in.integer();
  if (length < 4 || static_cast<std::size_t>(length) > largest)
    return error{errc::protocol, "a frame of a senseless length"};
  if (bytes.size() < 8) return frame{};
  const auto xid = in.integer();
  const auto whole = static_cast<std::size_t>(length) + 4;
  if (bytes.size() < whole) return frame{};
  return frame{whole, xid};
}

std::string_view take_frame(std::string_view& bytes) {
  reader in{bytes};
  const auto out = in.text();
  bytes = in.rest();
  return out;
}

}  // namespace holdfast::jute
