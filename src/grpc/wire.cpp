#include "grpc/wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::grpc {

namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::array<char, prefix_size> message_prefix(std::size_t length) noexcept {
  const auto byte = [length](unsigned shift) { return static_cast<char>(length >> shift & 0xffU); };
  return {0, byte(24), byte(16), byte(8), byte(0)};
}

void append_message(std::string& to, std::string_view message) {
  const auto prefix = message_prefix(message.size());
  to.append(prefix.data(), prefix.size());
  to.append(message);
}

result<bool> message_reader::feed(std::string_view& bytes, std::size_t largest) {
  if (head_size_ < prefix_size) {
    const auto count = std::min(prefix_size - head_size_, bytes.size());
    std::copy_n(bytes.begin(), count, head_.begin() + head_size_);
    head_size_ += count;
    bytes.remove_prefix(count);
    if (head_size_ < prefix_size) return false;
    if (head_[0] != 0)
      return error{errc::protocol, "it sent a compressed message, which it was not offered"};
    length_ = 0;
    for (std::size_t i = 1; i < prefix_size; ++i) length_ = length_ << 8U | head_[i];
    if (length_ > largest) {
      return error{errc::protocol,
                   fmt::format("it announced a message of {} bytes, and at most {} are accepted",
                               length_, largest)};
    }
    body_.clear();
  }
  const auto more = bytes.substr(0, length_ - body_.size());
  bytes.remove_prefix(more.size());
  if (body_.empty() && more.size() == length_) {
    whole_ = more;
  } else {
    body_.append(more);
    if (body_.size() < length_) return false;
    whole_ = body_;
  }
  head_size_ = 0;
  return true;
}

std::string message_reader::release() {
  return whole_.data() == body_.data() ? std::move(body_) : std::string{whole_};
}

std::string_view timeout_text(nanoseconds left, timeout_buffer& into) {
  constexpr std::int64_t most = 99'999'999;
  constexpr std::pair<std::int64_t, char> units[] = {{1, 'n'},
                                                     {1'000, 'u'},
                                                     {1'000'000, 'm'},
                                                     {1'000'000'000, 'S'},
                                                     {60'000'000'000, 'M'},
                                                     {3'600'000'000'000, 'H'}};
  const auto length = std::max<std::int64_t>(left.count(), 1);
  std::int64_t count = most;
  char unit = 'H';
  for (const auto& [size, letter] : units) {
    const auto rounded = length / size + (length % size != 0 ? 1 : 0);
    if (rounded > most) continue;
    count = rounded;
    unit = letter;
    break;
  }
  auto* const end = fmt::format_to(into.data(), "{}{}", count, unit);
  return {into.data(), static_cast<std::size_t>(end - into.data())};
}

std::string decode_status_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const bool coded =
        text.size() >= 3 && text[0] == '%' && hex_digit(text[1]) >= 0 && hex_digit(text[2]) >= 0;
    out.push_back(coded ? static_cast<char>(hex_digit(text[1]) * 16 + hex_digit(text[2]))
                        : text[0]);
    text.remove_prefix(coded ? 3 : 1);
  }
  return out;
}

}  // namespace holdfast::grpc
