#include "engines/redis/slots.hpp"

#include <array>
#include <string>

namespace holdfast::engines::redis {

namespace {

// CRC-16/XMODEM, as the specification of Redis Cluster demands.
std::uint16_t crc16(std::string_view bytes) noexcept {
  unsigned crc = 0;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned>(static_cast<unsigned char>(c)) << 8U;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000U) != 0 ? crc << 1U ^ 0x1021U : crc << 1U;
  }
  return static_cast<std::uint16_t>(crc);
}

unsigned plain_slot(std::string_view text) noexcept { return crc16(text) % slot_count; }

constexpr unsigned slots_per_tag = slot_count / tag_count;

const std::array<std::string, tag_count>& all_tags() {
  static const auto tags = [] {
    std::array<std::string, tag_count> out;
    unsigned found = 0;
    for (unsigned number = 0; found < tag_count; ++number) {
      const auto digits = std::to_string(number);
      auto& tag = out[plain_slot(digits) / slots_per_tag];
      if (!tag.empty()) continue;
      tag = '{' + digits + '}';
      ++found;
    }
    return out;
  }();
  return tags;
}

}  // namespace

unsigned slot_of(std::string_view key) noexcept {
  const auto open = key.find('{');
  if (open != std::string_view::npos) {
    const auto inside = key.substr(open + 1);
    const auto length = inside.find('}');
    if (length != std::string_view::npos && length > 0) return plain_slot(inside.substr(0, length));
  }
  return plain_slot(key);
}

unsigned tag_of(std::string_view name) noexcept { return slot_of(name) / slots_per_tag; }

std::string_view tag_text(unsigned tag) noexcept { return all_tags()[tag]; }

unsigned slot_of_tag(unsigned tag) noexcept { return slot_of(tag_text(tag)); }

}  // namespace holdfast::engines::redis
