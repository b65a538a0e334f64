// Durations as people write them. Decimal arithmetic on integers throughout: a double would round,
// and would let NaN and infinity in.
#include <chrono>

#include <holdfast/url.hpp>

#include "support/text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace holdfast {

namespace {

using std::chrono::nanoseconds;

struct unit {
  std::string_view name;
  std::int64_t size;  // in nanoseconds
};

constexpr std::array units{
    unit{"h", 3'600'000'000'000}, unit{"m", 60'000'000'000}, unit{"s", 1'000'000'000},
    unit{"ms", 1'000'000},        unit{"us", 1'000},         unit{"ns", 1}};

constexpr std::string_view digits = "0123456789";
constexpr std::string_view forever_word = "forever";

error bad_duration(std::string_view text, std::string_view why) {
  return {errc::misconfigured, fmt::format("The duration {} {}", support::quoted(text, 40), why)};
}

// The longest run of digits at the front, taken off `text`.
std::string_view take_digits(std::string_view& text) {
  const auto run = text.substr(0, text.find_first_not_of(digits));
  text.remove_prefix(run.size());
  return run;
}

// 0.DIGITS of a unit, rounded down. From the last digit to the first, so that nothing exceeds ten units.
std::int64_t fraction_of(std::string_view fraction, std::int64_t size) {
  std::int64_t sum = 0;
  for (auto digit = fraction.rbegin(); digit != fraction.rend(); ++digit) {
    sum = ((*digit - '0') * size + sum) / 10;
  }
  return sum;
}

}  // namespace

result<nanoseconds> parse_duration(std::string_view text) {
  constexpr std::string_view how = "write a number and a unit, such as 10s, 1.5s, 250ms, 2m or 1h.";
  constexpr std::string_view too_long =
      "is too long; the largest is about 292 years, or \"forever\".";
  if (text == forever_word) return nanoseconds::max();
  if (text.starts_with('-')) return bad_duration(text, "is negative; durations begin at zero.");

  std::string_view rest = text;
  const auto whole_digits = take_digits(rest);
  std::string_view fraction;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction = take_digits(rest);
    if (fraction.empty()) return bad_duration(text, fmt::format("ends in a point; {}", how));
  }
  if (whole_digits.empty()) return bad_duration(text, fmt::format("has no number; {}", how));

  std::int64_t size = 0;
  for (const auto& candidate : units) {
    if (rest == candidate.name || (rest.empty() && candidate.name == "s")) size = candidate.size;
  }
  if (size == 0) return bad_duration(text, fmt::format("has an unknown unit; {}", how));

  std::int64_t whole = 0;
  const auto read =
      std::from_chars(whole_digits.data(), whole_digits.data() + whole_digits.size(), whole);
  std::int64_t sum = 0;
  if (read.ec != std::errc{} || __builtin_mul_overflow(whole, size, &sum) ||
      __builtin_add_overflow(sum, fraction_of(fraction, size), &sum)) {
    return bad_duration(text, too_long);
  }
  return nanoseconds{sum};
}

std::string format_duration(nanoseconds duration) {
  if (duration == nanoseconds::max()) return std::string{forever_word};
  if (duration == nanoseconds::zero()) return "0s";
  const bool negative = duration < nanoseconds::zero();
  // Unsigned, because the most negative count has no positive counterpart.
  const auto count = negative ? 0 - static_cast<std::uint64_t>(duration.count())
                              : static_cast<std::uint64_t>(duration.count());

  for (const auto& [name, signed_size] : units) {
    const auto size = static_cast<std::uint64_t>(signed_size);
    if (count < size) continue;
    // Hours and minutes only where they come out short: 90s is 1.5m, but 61s stays 61s.
    const bool short_enough = (count % size) % (size / 10 + (size < 10)) == 0;
    if ((name == "h" || name == "m") && !short_enough) continue;
    const auto thousandths = size == 1 ? 0 : count % size / (size / 1000 + (size < 1000));
    auto text = fmt::format("{}{}.{:03}", negative ? "-" : "", count / size, thousandths);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text.append(name);
  }
  return "0s";  // not reached: everything is a multiple of 1ns
}

}  // namespace holdfast
