// Any bytes as a stream of a ZooKeeper server's frames, and as each of its records. What must hold: it does not matter
// how the network splits them; what is accepted stays inside the bytes; and what is cut short, or goes on behind its
// end, is refused.
#include "fuzz/require.hpp"

#include "jute/jute.hpp"
#include "jute/zookeeper.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace holdfast::jute;

struct cuts {
  std::vector<frame> frames;
  bool is_refused = false;
};

// `grow` says how many of the bytes have arrived, given how many had before.
template <class Grow>
cuts cut_up(std::string_view stream, std::size_t largest, Grow grow) {
  cuts out;
  std::size_t begin = 0, arrived = 0;
  while (arrived < stream.size()) {
    arrived = std::min(grow(arrived), stream.size());
    for (;;) {
      const auto next = next_frame(stream.substr(begin, arrived - begin), largest);
      if (!next) {
        out.is_refused = true;
        return out;
      }
      if (next->length == 0) break;
      REQUIRE(next->length <= arrived - begin && next->length <= largest + 4);
      out.frames.push_back(*next);
      begin += next->length;
    }
  }
  return out;
}

// ---- records: the texts that each has in it

using texts = std::vector<std::string_view>;

texts texts_of(const event& one) { return {one.path}; }
texts texts_of(const created& one) { return {one.path}; }
texts texts_of(const node& one) { return {one.data}; }
texts texts_of(const stat&) { return {}; }
texts texts_of(const children& one) { return one.names; }
texts texts_of(const connected& one) { return {one.password}; }
texts texts_of(const reply& one) { return {one.rest}; }
texts texts_of(const acls& one) {
  texts out;
  for (const auto& right : one.rights) out.insert(out.end(), {right.scheme, right.id});
  return out;
}
texts texts_of(const std::vector<part>& parts) {
  texts out;
  for (const auto& one : parts) out.push_back(one.path);
  return out;
}

void require_inside(const texts& all, std::string_view bytes) {
  std::size_t sum = 0;
  for (const auto text : all) {
    sum += text.size();
    REQUIRE(text.empty() ||
            (std::less_equal<>{}(bytes.data(), text.data()) &&
             std::less_equal<>{}(text.data() + text.size(), bytes.data() + bytes.size())));
  }
  REQUIRE(sum <= bytes.size());
}

// A record takes all of the bytes: none with less or with more of them is one, too.
template <class Read>
void check_record(std::string_view bytes, Read read, std::size_t cut) {
  const auto got = read(bytes);
  if (!got) return;
  require_inside(texts_of(*got), bytes);
  REQUIRE(!bytes.empty() && !read(bytes.substr(0, cut % bytes.size())));
  REQUIRE(!read(std::string{bytes} + '\0'));
}

// Servers before 3.4 leave out the last byte.
void check_greeting(std::string_view bytes, std::size_t cut) {
  const auto got = read_connected(bytes);
  if (!got) return;
  require_inside(texts_of(*got), bytes);
  REQUIRE(bytes.size() > 1 && !read_connected(bytes.substr(0, cut % (bytes.size() - 1))));
  REQUIRE(!read_connected(std::string{bytes} + std::string(2, '\0')));
}

void check_failure(const reply& multi) {
  const auto why = failure_of(multi);
  const auto parts = read_parts(multi.rest);
  if (multi.err != code::ok)
    REQUIRE(why == multi.err);
  else if (!parts)
    REQUIRE(why == code::marshalling);
  else
    REQUIRE(std::ranges::all_of(*parts, [&](const part& one) {
      return why != code::ok || one.err == code::ok || one.err == code::runtime_inconsistency;
    }));
}

void check_records(std::string_view bytes, std::size_t cut) {
  check_record(bytes, read_event, cut);
  check_record(bytes, read_created, cut);
  check_record(bytes, read_node, cut);
  check_record(bytes, read_stat, cut);
  check_record(bytes, read_children, cut);
  check_record(bytes, read_acls, cut);
  check_record(bytes, read_parts, cut);
  check_greeting(bytes, cut);
}

void check_inside(std::string_view inside, std::size_t cut) {
  check_records(inside, cut);
  const auto opened = open_reply(inside);
  REQUIRE(opened.has_value() == (inside.size() >= 16));
  if (!opened) return;
  REQUIRE(opened->rest.size() == inside.size() - 16);
  require_inside(texts_of(*opened), inside);
  check_records(opened->rest, cut);
  check_failure(*opened);
}

void check(std::string_view stream, std::size_t largest) {
  // The splits depend on the bytes alone, so that a finding can be repeated.
  std::minstd_rand random{static_cast<unsigned>(std::hash<std::string_view>{}(stream))};
  const auto at_once = cut_up(stream, largest, [&](std::size_t) { return stream.size(); });
  const auto bytewise = cut_up(stream, largest, [](std::size_t had) { return had + 1; });
  const auto split =
      cut_up(stream, largest, [&](std::size_t had) { return had + 1 + random() % 9; });
  const auto same = [](const frame& a, const frame& b) {
    return a.length == b.length && a.xid == b.xid;
  };
  for (const auto* other : {&bytewise, &split}) {
    REQUIRE(std::ranges::equal(at_once.frames, other->frames, same));
    REQUIRE(at_once.is_refused == other->is_refused);
  }
  for (const auto& whole : at_once.frames) {
    const auto before = stream.size();
    const auto inside = take_frame(stream);
    REQUIRE(inside.size() + 4 == whole.length && before - stream.size() == whole.length);
    check_inside(inside, random());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view stream{reinterpret_cast<const char*>(data), size};
  check(stream, largest_frame);
  check(stream, 48);  // tight, so that short inputs reach it
  check_inside(stream, size / 2);
  return 0;
}
