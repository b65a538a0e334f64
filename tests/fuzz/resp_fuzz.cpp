// Any bytes as a stream of replies. What must hold: it does not matter how the network splits them; every frame is one
// value, wholly consumed, whose views stay inside; and what framing refuses or waits for, take() refuses.
#include "fuzz/require.hpp"

#include "resp/resp.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace {

using namespace holdfast::resp;
using frame = frame_scanner::frame;

struct cuts {
  std::vector<frame> frames;
  bool is_refused = false;
};

// `grow` says how many of the bytes have arrived, given how many had before.
template <class Grow>
cuts cut_up(std::string_view stream, const caps& limits, Grow grow) {
  cuts out;
  frame_scanner framing{limits};
  std::size_t begin = 0, arrived = 0;
  while (arrived < stream.size()) {
    arrived = std::min(grow(arrived), stream.size());
    for (;;) {
      const auto next = framing.next(stream.substr(begin, arrived - begin));
      if (!next) {
        out.is_refused = true;
        return out;
      }
      if (next->length == 0) break;
      REQUIRE(next->length <= arrived - begin);
      out.frames.push_back(*next);
      begin += next->length;
    }
  }
  return out;
}

bool is_inside(const value& v, std::string_view bytes) {
  if (!v.text.empty() && (v.text.data() < bytes.data() ||
                          v.text.data() + v.text.size() > bytes.data() + bytes.size())) {
    return false;
  }
  return std::ranges::all_of(v.items, [&](const value& item) { return is_inside(item, bytes); });
}

void check_value(std::string_view bytes, const frame& whole, const caps& limits, std::size_t cut) {
  const auto own = bytes.substr(0, whole.length);
  auto rest = own;
  const auto parsed = take(rest, limits);
  REQUIRE(parsed && rest.empty());
  REQUIRE((parsed->what == value::kind::push) == whole.push);
  REQUIRE(is_inside(*parsed, own));
  rest = bytes;
  REQUIRE(take(rest, limits) && rest.size() == bytes.size() - whole.length);
  rest = own.substr(0, cut % own.size());
  REQUIRE(!take(rest, limits));
}

void check(std::string_view stream, const caps& limits) {
  // The splits depend on the bytes alone, so that a finding can be repeated.
  std::minstd_rand random{static_cast<unsigned>(std::hash<std::string_view>{}(stream))};
  const auto at_once = cut_up(stream, limits, [&](std::size_t) { return stream.size(); });
  const auto bytewise = cut_up(stream, limits, [](std::size_t had) { return had + 1; });
  const auto split =
      cut_up(stream, limits, [&](std::size_t had) { return had + 1 + random() % 9; });
  const auto same = [](const frame& a, const frame& b) {
    return a.length == b.length && a.push == b.push;
  };
  for (const auto* other : {&bytewise, &split}) {
    REQUIRE(std::ranges::equal(at_once.frames, other->frames, same));
    REQUIRE(at_once.is_refused == other->is_refused);
  }
  for (const auto& whole : at_once.frames) {
    check_value(stream, whole, limits, random());
    stream.remove_prefix(whole.length);
  }
  auto rest = stream;
  REQUIRE(!take(rest, limits) && rest.size() == stream.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view stream{reinterpret_cast<const char*>(data), size};
  check(stream, {});
  // Tight limits, so that short inputs reach them.
  check(stream, {.frame = 48, .elements = 6, .depth = 3});
  return 0;
}
