// Any bytes as the target and as the body of a request to `holdfast serve`, and as a file of its keys. What must hold:
// what is refused is refused with a sentence and a status that fits, and what is accepted means one thing only.
#include "fuzz/require.hpp"

#include "server/body.hpp"
#include "server/json_text.hpp"
#include "server/keys.hpp"
#include "server/path.hpp"

#include <holdfast/url.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

namespace {

using namespace holdfast::server;
using namespace std::chrono_literals;

// True: it was not refused.
template <class Action>
bool judged(Action&& action) {
  try {
    action();
    return true;
  } catch (const refused& no) {
    REQUIRE(no.why().status == 400 && !no.why().detail.empty());
    // It is shown in terminals and logs.
    const auto shown = json_of(no.why());
    REQUIRE(std::ranges::all_of(shown, [](char c) { return c >= ' ' && c < 0x7f; }));
    return false;
  }
}

std::string encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    out += {'%', digits[byte >> 4U], digits[byte & 15U]};
  }
  return out;
}

void check_target(std::string_view bytes) {
  const auto [path, asked] = split_target(bytes);
  REQUIRE(path.size() + asked.size() <= bytes.size());
  REQUIRE(path.find('?') == std::string_view::npos);
  const auto [name, verb] = split_verb(path);
  REQUIRE(verb.find(':') == std::string_view::npos);
  REQUIRE(name.size() + verb.size() <= path.size());
  if (const auto decoded = percent_decoded(name)) {
    REQUIRE(decoded->size() <= name.size());
    REQUIRE(percent_decoded(encoded(*decoded)) == decoded);
    const bool is_fine = judged([&] { check_name_or_refuse(*decoded); });
    REQUIRE(is_fine == static_cast<bool>(holdfast::check_name(*decoded)));
  }
  judged([&, text = asked] {
    const query read{text};
    for (const auto* each : {"name", "ttl", "prefix"})
      if (const auto* value = read.find(each)) REQUIRE(value->size() <= text.size());
    read.allow_only({"name", "ttl", "prefix"});
  });
}

void check_body(std::string_view bytes) {
  constexpr auto most = std::chrono::nanoseconds::max();
  const bool is_object = judged([&] { const fields whole{bytes}; });
  if (!is_object) return;
  // Each alone, as one that is refused ends the reading.
  for (const auto* each : {"ttl", "wait", "label", "names", "of", "asks", "a"}) {
    fields in{bytes};
    judged([&] {
      if (const auto text = in.text(each, 20)) REQUIRE(text->size() <= 20);
    });
    judged([&] {
      if (const auto number = in.whole(each, -5, 5)) REQUIRE(*number >= -5 && *number <= 5);
    });
    judged([&] { in.natural(each); });
    judged([&] { in.truth(each); });
    judged([&] {
      if (const auto time = in.duration(each, 1ms, 1h)) REQUIRE(*time >= 1ms && *time <= 1h);
      if (const auto time = in.duration(each, 0ns, most)) REQUIRE(*time >= 0ns);
    });
    judged([&] { REQUIRE(in.texts(each, 3, 20).size() <= 3); });
    judged([&] {
      for (auto& one : in.objects(each, 3)) judged([&] { one.nothing_else(); });
    });
    judged([&] { in.nothing_else(); });
  }
}

void check_keys(std::string_view bytes) {
  const auto ring = key_ring::parse(bytes, "keys");
  if (!ring) {
    REQUIRE(!ring.error().message().empty());
    return;
  }
  REQUIRE(!ring->empty());
  for (const auto& each : ring->all()) {
    REQUIRE(!each.name.empty() && (each.inspect || each.acquire || each.break_locks));
    REQUIRE(each.prefix.find('*') == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  check_target(bytes);
  check_body(bytes);
  check_keys(bytes);
  return 0;
}
