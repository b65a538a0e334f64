// ZooKeeper's serialisation (jute), as pure code: values in, bytes out, and back; no I/O.
//
// Numbers are big-endian; a string or buffer is its length and its bytes, a vector its length and its items; -1 stands
// for "none". Nothing here trusts the peer: a length is compared with the bytes that have arrived before anything is
// allocated. Anything that is not the protocol is an error, never undefined behaviour.
#pragma once

#include <holdfast/result.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::jute {

class writer {
 public:
  explicit writer(std::string& to) : to_(to) {}

  void boolean(bool value) { to_.push_back(value ? 1 : 0); }
  void integer(std::int32_t value) { number(static_cast<std::uint32_t>(value)); }
  void big(std::int64_t value) { number(static_cast<std::uint64_t>(value)); }
  void text(std::string_view value) {
    integer(static_cast<std::int32_t>(value.size()));
    to_.append(value);
  }

 private:
  template <std::unsigned_integral T>
  void number(T value) {
    for (unsigned shift = sizeof(T) * 8; shift != 0;) {
      shift -= 8;
      to_.push_back(static_cast<char>(value >> shift));
    }
  }
  std::string& to_;
};

// Reads what a writer wrote. After a read beyond the end, or of a senseless length, everything reads as nothing and
// ok() is false: so a record is read first and judged once. The views point into the bytes.
class reader {
 public:
  explicit reader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const noexcept { return ok_; }
  bool at_end() const noexcept { return rest_.empty(); }
  std::string_view rest() const noexcept { return rest_; }

  bool boolean() { return take(1) == std::string_view{"\1", 1}; }
  std::int32_t integer() { return static_cast<std::int32_t>(number<std::uint32_t>()); }
  std::int64_t big() { return static_cast<std::int64_t>(number<std::uint64_t>()); }
  std::string_view text() {
    const auto length = length_or_none();
    return length < 0 ? std::string_view{} : take(static_cast<std::size_t>(length));
  }
  // The length of a vector whose items take at least `item` bytes each; 0 for none.
  std::size_t items(std::size_t item) {
    const auto count = length_or_none();
    if (count <= 0) return 0;
    if (static_cast<std::size_t>(count) > rest_.size() / item) fail();
    return ok_ ? static_cast<std::size_t>(count) : 0;
  }

 private:
  std::int32_t length_or_none() {
    const auto length = integer();
    if (length < -1) fail();
    return length;
  }
  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) fail();
    if (!ok_) return {};
    const auto out = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return out;
  }
  template <std::unsigned_integral T>
  T number() {
    T out = 0;
    for (const char byte : take(sizeof(T)))
      out = static_cast<T>(out << 8U) | static_cast<unsigned char>(byte);
    return out;
  }
  void fail() noexcept {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
};

// ---- frames: each is its length and that many bytes

struct frame {
  std::size_t length = 0;  // with its four bytes of length; 0: not complete yet
  std::int32_t xid = 0;    // of a reply: its request's, or one of those below
};
inline constexpr std::size_t largest_frame = std::size_t{64} << 20U;
inline constexpr std::int32_t event_xid = -1, ping_xid = -2, auth_xid = -4, set_watches_xid = -8;

// The frame at the beginning of `bytes`. protocol: its length is senseless.
result<frame> next_frame(std::string_view bytes, std::size_t largest = largest_frame);
// What is inside the first frame, which `bytes` are then advanced past. REQUIRES: it is complete.
std::string_view take_frame(std::string_view& bytes);

// Makes room for the length of a frame that begins here, and fills it in when the frame is complete.
class framed {
 public:
  explicit framed(std::string& to) : to_(to), begin_(to.size()) { to_.append(4, '\0'); }
  framed(const framed&) = delete;
  framed& operator=(const framed&) = delete;
  ~framed() {
    const auto length = static_cast<std::uint32_t>(to_.size() - begin_ - 4);
    for (std::size_t i = 0; i < 4; ++i)
      to_[begin_ + i] = static_cast<char>(length >> (24U - 8U * i));
  }

 private:
  std::string& to_;
  std::size_t begin_;
};

}  // namespace holdfast::jute
