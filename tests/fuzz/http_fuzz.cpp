// Any bytes as what a service sends: answers, or a stream of events. What must hold: it does not matter how the network
// splits them; an answer that was cut out is one answer, wholly consumed; and what is read is never more than was sent.
#include "fuzz/require.hpp"

#include "http/http.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace holdfast::http;

constexpr caps small_caps{.head = 512, .body = 1024};

struct cuts {
  std::vector<std::size_t> lengths;
  bool is_refused = false;
};

// `grow` says how many of the bytes have arrived, given how many had before.
template <class Grow>
cuts cut_up(std::string_view stream, const caps& limits, Grow grow) {
  cuts out;
  answer_scanner scanner{limits};
  std::size_t begin = 0, arrived = 0;
  while (arrived < stream.size()) {
    arrived = std::min(grow(arrived), stream.size());
    for (;;) {
      const auto length = scanner.next(stream.substr(begin, arrived - begin));
      if (!length) {
        out.is_refused = true;
        return out;
      }
      if (*length == 0) break;
      REQUIRE(*length <= arrived - begin);
      out.lengths.push_back(*length);
      begin += *length;
    }
  }
  return out;
}

void check_answer(std::string_view bytes, std::size_t length, const caps& limits, std::size_t cut) {
  const auto own = bytes.substr(0, length);
  const auto read = read_answer(own, limits);
  REQUIRE(read);
  REQUIRE(read->status >= 200 && read->status <= 599);
  REQUIRE(read->body.size() <= limits.body && read->body.size() < length);
  REQUIRE(read->content_type.size() < length && read->retry_after.size() < length);
  REQUIRE(!read_answer(own.substr(0, cut % length), limits));
}

void check_answers(std::string_view stream, const caps& limits) {
  // The splits depend on the bytes alone, so that a finding can be repeated.
  std::minstd_rand random{static_cast<unsigned>(std::hash<std::string_view>{}(stream))};
  const auto at_once = cut_up(stream, limits, [&](std::size_t) { return stream.size(); });
  const auto bytewise = cut_up(stream, limits, [](std::size_t had) { return had + 1; });
  const auto split =
      cut_up(stream, limits, [&](std::size_t had) { return had + 1 + random() % 9; });
  for (const auto* other : {&bytewise, &split}) {
    REQUIRE(at_once.lengths == other->lengths);
    REQUIRE(at_once.is_refused == other->is_refused);
  }
  for (const auto length : at_once.lengths) {
    check_answer(stream, length, limits, random());
    stream.remove_prefix(length);
  }
}

struct told {
  std::vector<event> events;
  bool is_refused = false;
};

told events_in(std::string_view body, std::size_t step) {
  told out;
  event_reader reader;
  for (std::size_t at = 0; at < body.size() && !out.is_refused; at += step)
    out.is_refused = !reader.read(body.substr(at, step), out.events);
  return out;
}

void check_events(std::string_view body) {
  const auto at_once = events_in(body, body.size() + 1), bytewise = events_in(body, 1);
  REQUIRE(at_once.is_refused == bytewise.is_refused);
  REQUIRE(std::ranges::equal(at_once.events, bytewise.events, [](const event& a, const event& b) {
    return a.name == b.name && a.data == b.data;
  }));
  std::size_t carried = 0;
  for (const auto& each : at_once.events) {
    REQUIRE(!each.name.empty());
    carried += each.data.size();
  }
  REQUIRE(carried <= body.size());
}

void check_stream(std::string_view bytes) {
  stream_scanner scanner;
  bool has_head = false;
  while (!bytes.empty()) {
    const auto piece = scanner.next(bytes);
    if (!piece || piece->bytes == 0) return;
    REQUIRE(piece->bytes <= bytes.size());
    REQUIRE(piece->is_head == !has_head);
    has_head = true;
    bytes.remove_prefix(piece->bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  check_answers(bytes, {});
  check_answers(bytes, small_caps);
  check_stream(bytes);
  check_events(bytes);
  return 0;
}
