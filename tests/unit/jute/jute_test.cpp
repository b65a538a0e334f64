#include "jute/jute.hpp"

#include "support/expect.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::jute {
namespace {

using testing::fails_with;
using testing::is_ok;
using namespace std::string_literals;

constexpr auto smallest = std::numeric_limits<std::int32_t>::min();
constexpr auto largest = std::numeric_limits<std::int32_t>::max();

std::string integer(std::int32_t value) {
  std::string out;
  writer{out}.integer(value);
  return out;
}

std::string framed_text(std::string_view inside) {
  std::string out;
  {
    const framed frame{out};
    out += inside;
  }
  return out;
}

// ---- values

TEST(jute_values, numbers_are_big_endian) {
  std::string out;
  writer to{out};
  to.integer(0x01020304);
  to.big(-2);
  to.boolean(true);
  to.boolean(false);
  to.text("ab");
  EXPECT_EQ(out, "\1\2\3\4\xff\xff\xff\xff\xff\xff\xff\xfe\1\0\0\0\0\2"s + "ab");
}

TEST(jute_values, what_was_written_is_read) {
  std::string out;
  writer to{out};
  for (const auto value : {0, 1, -1, smallest, largest}) to.integer(value);
  for (const auto value : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1},
                           std::numeric_limits<std::int64_t>::max()})
    to.big(value);
  to.text("");
  to.text("a\0b"s);
  to.boolean(true);
  to.boolean(false);
  reader in{out};
  for (const auto value : {0, 1, -1, smallest, largest}) EXPECT_EQ(in.integer(), value);
  EXPECT_EQ(in.big(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(in.big(), -1);
  EXPECT_EQ(in.big(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(in.text(), "");
  EXPECT_EQ(in.text(), "a\0b"s);
  EXPECT_TRUE(in.boolean());
  EXPECT_FALSE(in.boolean());
  EXPECT_TRUE(in.ok() && in.at_end());
}

TEST(jute_values, none_reads_as_empty) {
  const auto none = integer(-1);
  reader text{none};
  EXPECT_EQ(text.text(), "");
  EXPECT_TRUE(text.ok() && text.at_end());
  reader vector{none};
  EXPECT_EQ(vector.items(4), 0U);
  EXPECT_TRUE(vector.ok() && vector.at_end());
}

TEST(jute_values, senseless_lengths_are_refused) {
  for (const auto length : {smallest, -2, 5, largest}) {
    const auto bytes = integer(length) + "1234";
    reader text{bytes};
    EXPECT_EQ(text.text(), "");
    EXPECT_FALSE(text.ok()) << length;
    reader vector{bytes};
    EXPECT_EQ(vector.items(1), 0U);
    EXPECT_FALSE(vector.ok()) << length;
  }
}

TEST(jute_values, vector_is_no_longer_than_its_bytes_allow) {
  const auto bytes = integer(2) + "12345678";
  reader fits{bytes};
  EXPECT_EQ(fits.items(4), 2U);
  EXPECT_TRUE(fits.ok());
  reader too_long{bytes};
  EXPECT_EQ(too_long.items(5), 0U);
  EXPECT_FALSE(too_long.ok());
}

TEST(jute_values, nothing_is_read_after_a_failure) {
  const auto bytes = integer(9) + integer(7) + "\1";
  reader in{bytes};
  EXPECT_EQ(in.text(), "");
  EXPECT_EQ(in.integer(), 0);
  EXPECT_EQ(in.big(), 0);
  EXPECT_FALSE(in.boolean());
  EXPECT_EQ(in.text(), "");
  EXPECT_EQ(in.items(1), 0U);
  EXPECT_EQ(in.rest(), "");
  EXPECT_FALSE(in.ok());
}

// ---- frames

TEST(jute_frames, frame_is_waited_for_until_its_last_byte) {
  const auto bytes = framed_text(integer(7) + "abc");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto early = next_frame(std::string_view{bytes}.substr(0, n));
    ASSERT_TRUE(is_ok(early));
    EXPECT_EQ(early->length, 0U) << n;
  }
  const auto whole = next_frame(bytes);
  ASSERT_TRUE(is_ok(whole));
  EXPECT_EQ(whole->length, bytes.size());
  EXPECT_EQ(whole->xid, 7);
}

TEST(jute_frames, frames_are_taken_one_by_one) {
  const auto stream = framed_text(integer(1) + "a") + framed_text(integer(ping_xid)) +
                      framed_text(integer(3) + "c");
  std::string_view rest{stream};
  std::vector<std::int32_t> xids;
  std::vector<std::string_view> insides;
  while (!rest.empty()) {
    const auto frame = next_frame(rest);
    ASSERT_TRUE(is_ok(frame));
    xids.push_back(frame->xid);
    const auto before = rest.size();
    insides.push_back(take_frame(rest));
    ASSERT_EQ(before - rest.size(), frame->length);
  }
  EXPECT_EQ(xids, (std::vector{1, ping_xid, 3}));
  EXPECT_EQ(insides[0], integer(1) + "a");
  EXPECT_EQ(insides[1], integer(ping_xid));
  EXPECT_EQ(insides[2], integer(3) + "c");
}

TEST(jute_frames, senseless_length_is_refused_as_soon_as_it_is_there) {
  for (const auto length :
       {smallest, -1, 0, 3, static_cast<std::int32_t>(largest_frame) + 1, largest}) {
    const auto bytes = integer(length);
    EXPECT_TRUE(is_ok(next_frame(std::string_view{bytes}.substr(0, 3))));
    EXPECT_TRUE(fails_with(next_frame(bytes), errc::protocol)) << length;
  }
  EXPECT_TRUE(is_ok(next_frame(integer(static_cast<std::int32_t>(largest_frame)))));
  EXPECT_TRUE(fails_with(next_frame("HTTP/1.1 400 Bad Request\r\n"), errc::protocol));
}

TEST(jute_frames, largest_frame_can_be_chosen) {
  const auto bytes = framed_text("12345678");
  EXPECT_TRUE(is_ok(next_frame(bytes, 8)));
  EXPECT_TRUE(fails_with(next_frame(bytes, 7), errc::protocol));
}

TEST(jute_frames, length_is_filled_in_behind_what_was_there) {
  std::string out = "before";
  {
    const framed frame{out};
    out += std::string(0x10203, 'x');
  }
  EXPECT_EQ(out.substr(0, 10), "before\0\1\2\3"s);
}

}  // namespace
}  // namespace holdfast::jute
