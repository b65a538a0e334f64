// The Redis protocol, RESP2 and RESP3, as pure code: bytes in, values out, no I/O.
//
// Nothing here trusts the peer: lengths, counts and nesting are capped before anything is allocated, and memory is
// taken only for bytes that have arrived. Anything that is not the protocol is an error, never undefined behaviour.
#pragma once

#include <holdfast/result.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::resp {

struct caps {
  std::size_t frame = std::size_t{64} << 20U;  // bytes of one whole reply
  std::size_t elements = 1U << 20U;            // of one aggregate, and of one reply in all
  unsigned depth = 8;
};

// A value of one reply. The views point into the frame it was parsed from.
struct value {
  enum class kind : std::uint8_t {
    null,
    simple,
    error,
    integer,
    bulk,
    boolean,
    real,
    big,
    verbatim,
    array,
    map,
    set,
    push
  };
  kind what = kind::null;
  std::string_view text;  // simple, error, bulk, big, verbatim (without its format), real as sent
  std::int64_t integer = 0;  // integer; boolean as 0 or 1
  std::vector<value> items;  // array, set, push; of a map: key, value, key, value ...

  bool is_null() const noexcept { return what == kind::null; }
  bool is_error() const noexcept { return what == kind::error; }
};

// The value at the beginning of `bytes`, which are then advanced past it. `bytes` hold whole frames, as a
// frame_scanner cuts them; anything else is a protocol error.
result<value> take(std::string_view& bytes, const caps& limits = {});

// Cuts the byte stream into replies. Looks at every byte about once, however the network splits them.
class frame_scanner {
 public:
  struct frame {
    std::size_t length = 0;  // 0: not complete yet
    bool push = false;       // unasked for: not the reply to a command
  };
  explicit frame_scanner(caps limits = {}) : limits_(limits) {}
  // The frame at the beginning of `bytes`; asked again with more bytes as long as it is incomplete.
  result<frame> next(std::string_view bytes);
  void reset() noexcept;

 private:
  caps limits_;
  std::size_t scanned_ = 0;   // bytes of whole items of the incomplete frame
  std::size_t searched_ = 0;  // bytes that were searched for the end of the line begun at scanned_
  std::size_t left_ = 1;      // items still to come on the innermost level
  std::vector<std::size_t> outer_;  // and on each level around it
  std::size_t elements_ = 0;        // announced by the aggregates so far
  bool push_ = false;
};

// Appends one command: an array of bulk strings.
void append_command(std::string& to, std::initializer_list<std::string_view> words);
// The same piece by piece: the head with the number of words, then each word.
void append_head(std::string& to, std::size_t words);
void append_word(std::string& to, std::string_view word);
void append_word(std::string& to, std::int64_t number);

}  // namespace holdfast::resp
