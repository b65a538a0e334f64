#include "grpc/wire.hpp"

#include "support/expect.hpp"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using testing::fails_with;

std::string timeout(nanoseconds left) {
  grpc::timeout_buffer into;
  return std::string{grpc::timeout_text(left, into)};
}

TEST(grpc_wire, a_timeout_has_at_most_eight_digits_and_is_rounded_up) {
  EXPECT_EQ(timeout(1ns), "1n");
  EXPECT_EQ(timeout(99'999'999ns), "99999999n");
  EXPECT_EQ(timeout(100'000'000ns), "100000u");
  EXPECT_EQ(timeout(100'000'001ns), "100001u");
  EXPECT_EQ(timeout(99'999'999us), "99999999u");
  EXPECT_EQ(timeout(100s), "100000m");
  EXPECT_EQ(timeout(30h), "108000S");
  EXPECT_EQ(timeout(30h * 1000), "1800000M");
  EXPECT_EQ(timeout(nanoseconds::max()), "2562048H");
  EXPECT_EQ(timeout(0ns), "1n");
  EXPECT_EQ(timeout(-5s), "1n");
}

TEST(grpc_wire, a_status_text_is_decoded_as_far_as_it_is_encoded) {
  EXPECT_EQ(grpc::decode_status_text("a%20b%25"), "a b%");
  EXPECT_EQ(grpc::decode_status_text("%c3%A4"), "\xc3\xa4");
  EXPECT_EQ(grpc::decode_status_text("100%"), "100%");
  EXPECT_EQ(grpc::decode_status_text("%2"), "%2");
  EXPECT_EQ(grpc::decode_status_text("%zz%41"), "%zzA");
  EXPECT_EQ(grpc::decode_status_text(""), "");
}

// Fed in pieces of `size`, what comes out?
std::vector<std::string> messages(std::string_view stream, std::size_t size) {
  std::vector<std::string> out;
  grpc::message_reader reader;
  while (!stream.empty()) {
    auto piece = stream.substr(0, size);
    stream.remove_prefix(piece.size());
    while (!piece.empty()) {
      const auto whole = reader.feed(piece, 1000);
      EXPECT_TRUE(testing::is_ok(whole));
      if (whole && *whole) out.emplace_back(reader.message());
    }
  }
  EXPECT_FALSE(reader.is_partial());
  return out;
}

TEST(grpc_wire, messages_are_cut_alike_however_they_arrive) {
  const std::vector<std::string> all{"", "a", std::string(300, 'b'), "", std::string(1000, 'c')};
  std::string stream;
  for (const auto& one : all) grpc::append_message(stream, one);
  for (const std::size_t size : {1U, 2U, 5U, 7U, 305U, 100000U})
    EXPECT_EQ(messages(stream, size), all) << size;
}

TEST(grpc_wire, a_message_beyond_the_cap_or_compressed_is_an_error) {
  std::string stream;
  grpc::append_message(stream, std::string(11, 'x'));
  for (const std::size_t most : {10U, 11U}) {
    grpc::message_reader reader;
    std::string_view bytes = stream;
    EXPECT_EQ(reader.feed(bytes, most).has_value(), most == 11);
  }
  stream[0] = 1;
  grpc::message_reader reader;
  std::string_view bytes = stream;
  EXPECT_TRUE(fails_with(reader.feed(bytes, 1000), errc::protocol));
}

}  // namespace
}  // namespace holdfast
