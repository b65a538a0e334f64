// The bytes that have come in and are not yet taken by the protocol: one piece of memory that grows with its need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace holdfast::net {

class read_buffer {
 public:
  static constexpr std::size_t usual = std::size_t{64} << 10U;
  static constexpr std::size_t most = std::size_t{128} << 20U;

  // Room for at least a few kilobytes more. Empty: an unfinished frame fills all that we are willing to hold.
  std::span<char> room() {
    if (end_ == 0 && capacity_ > 16 * usual)
      capacity_ = 0;  // a big frame has been here; give its memory back
    if (capacity_ - end_ < usual / 4) make_room();
    return {memory_.get() + end_, capacity_ - end_};
  }
  void filled(std::size_t bytes) noexcept { end_ += bytes; }
  std::string_view view() const noexcept { return {memory_.get() + begin_, end_ - begin_}; }
  void consume(std::size_t bytes) noexcept {
    begin_ += bytes;
    if (begin_ == end_) begin_ = end_ = 0;
  }

 private:
  void make_room() {
    const auto held = end_ - begin_;
    auto wanted = std::max(capacity_, usual);
    if (held > wanted / 2)
      wanted = std::min(wanted * 2, most);  // half full with one frame: it is a big one
    if (wanted == capacity_) {
      if (held > 0) std::memmove(memory_.get(), memory_.get() + begin_, held);
    } else {
      auto fresh = std::make_unique_for_overwrite<char[]>(wanted);
      if (held > 0) std::memcpy(fresh.get(), memory_.get() + begin_, held);
      memory_ = std::move(fresh);
      capacity_ = wanted;
    }
    begin_ = 0;
    end_ = held;
  }

  std::unique_ptr<char[]> memory_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace holdfast::net
