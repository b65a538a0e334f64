#include <chrono>

#include <holdfast/url.hpp>

#include "support/expect.hpp"

#include <gtest/gtest.h>

#include <random>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using testing::fails_with;

TEST(duration, what_people_write_is_understood) {
  EXPECT_EQ(parse_duration("10s").value(), 10s);
  EXPECT_EQ(parse_duration("10").value(), 10s);
  EXPECT_EQ(parse_duration("1.5s").value(), 1500ms);
  EXPECT_EQ(parse_duration("0.25").value(), 250ms);
  EXPECT_EQ(parse_duration("250ms").value(), 250ms);
  EXPECT_EQ(parse_duration("2m").value(), 2min);
  EXPECT_EQ(parse_duration("1h").value(), 1h);
  EXPECT_EQ(parse_duration("100us").value(), 100us);
  EXPECT_EQ(parse_duration("5000ns").value(), 5us);
  EXPECT_EQ(parse_duration("0s").value(), 0s);
  EXPECT_EQ(parse_duration("0.0000000019s").value(), 1ns);  // rounded down
  EXPECT_EQ(parse_duration("1.1h").value(), 3960s);
  EXPECT_EQ(parse_duration("forever").value(), nanoseconds::max());
  EXPECT_EQ(parse_duration("9223372036854775807ns").value(), nanoseconds::max());
}

TEST(duration, everything_else_is_refused) {
  for (const auto* text : {"",
                           "s",
                           "-1s",
                           "-0.5",
                           "nan",
                           "inf",
                           "infinity",
                           "1e3s",
                           "1e999s",
                           "1e999",
                           "0x10s",
                           "1 s",
                           " 1s",
                           "1s ",
                           "1.",
                           "1.s",
                           ".5s",
                           "1.5.5s",
                           "1,5s",
                           "10sec",
                           "10S",
                           "1d",
                           "+1s",
                           "9223372036854775808ns",
                           "9223372036.9s",
                           "99999999999999999999999s",
                           "2562048h",
                           "forever1",
                           "NaNs"}) {
    EXPECT_TRUE(fails_with(parse_duration(text), errc::misconfigured)) << text;
  }
}

TEST(duration, reads_well) {
  EXPECT_EQ(format_duration(0s), "0s");
  EXPECT_EQ(format_duration(1500ms), "1.5s");
  EXPECT_EQ(format_duration(250ms), "250ms");
  EXPECT_EQ(format_duration(10s), "10s");
  EXPECT_EQ(format_duration(61s), "61s");
  EXPECT_EQ(format_duration(90s), "1.5m");
  EXPECT_EQ(format_duration(24h), "24h");
  EXPECT_EQ(format_duration(1h), "1h");
  EXPECT_EQ(format_duration(5us), "5us");
  EXPECT_EQ(format_duration(1ns), "1ns");
  EXPECT_EQ(format_duration(123456789ns), "123.456ms");
  EXPECT_EQ(format_duration(-1500ms), "-1.5s");
  EXPECT_EQ(format_duration(nanoseconds::max()), "forever");
  EXPECT_FALSE(format_duration(nanoseconds::min()).empty());
}

TEST(duration, what_is_written_reads_back_as_about_the_same) {
  std::mt19937_64 random{42};
  for (int i = 0; i < 20'000; ++i) {
    const nanoseconds length{static_cast<std::int64_t>(random() >> (1 + random() % 63))};
    const auto back = parse_duration(format_duration(length));
    ASSERT_TRUE(back) << format_duration(length);
    EXPECT_LE(*back, length);
    EXPECT_GE(back->count(), length.count() - length.count() / 1000 - 1) << format_duration(length);
  }
}

}  // namespace
}  // namespace holdfast
