// How gRPC writes things inside HTTP/2: messages in DATA, deadlines and status texts in header fields. Pure code, and
// nothing in it trusts the peer.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::grpc {

// In front of every message: one byte "compressed" (we never offer that), four bytes length, big end first.
constexpr std::size_t prefix_size = 5;
std::array<char, prefix_size> message_prefix(std::size_t length) noexcept;
void append_message(std::string& to, std::string_view message);

// Cuts the DATA of one stream into messages. Memory is taken only for bytes that have come.
class message_reader {
 public:
  // Takes bytes off the front of `bytes` until a message is complete (true) or nothing is left (false). A message that
  // came in one piece is not copied.
  result<bool> feed(std::string_view& bytes, std::size_t largest);
  // The complete one; until the next feed(), and as long as the bytes are there. release() makes it the caller's.
  std::string_view message() const noexcept { return whole_; }
  std::string release();
  // In the middle of a message: then the stream must not end.
  bool is_partial() const noexcept { return head_size_ > 0; }

 private:
  std::array<unsigned char, prefix_size> head_{};
  std::size_t head_size_ = 0;
  std::size_t length_ = 0;  // known when the head is complete
  std::string body_;
  std::string_view whole_;
};

// The value of "grpc-timeout": at most eight digits and a unit, rounded up. At least 1 unit.
using timeout_buffer = std::array<char, 16>;
std::string_view timeout_text(nanoseconds left, timeout_buffer& into);

// The text of "grpc-message". What is no %XX stands for itself, as the specification wants it.
std::string decode_status_text(std::string_view text);

}  // namespace holdfast::grpc
