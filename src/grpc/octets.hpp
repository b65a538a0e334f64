// Text as nghttp2 wants it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace holdfast::grpc {

inline std::string_view view(const std::uint8_t* bytes, std::size_t length) noexcept {
  return {reinterpret_cast<const char*>(bytes), length};
}

// nghttp2 takes pointers to non-const and does not write through them.
inline std::uint8_t* raw(std::string_view text) noexcept {
  return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
}

}  // namespace holdfast::grpc
