// The packing of lock words, and the layout that other processes rely on.
#include "engines/file/word.hpp"
#include "engines/file/layout.hpp"
#include "engines/file/shard.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace holdfast::engines::file {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t hour = nanoseconds{1h}.count();
constexpr std::int64_t day = 24 * hour;
constexpr std::int64_t longest = 7 * day;

TEST(file_word, tags_are_told_apart) {
  EXPECT_EQ(tag_of(closed_word), word_tag::closed);
  EXPECT_EQ(tag_of(slow_word), word_tag::slow);
  EXPECT_EQ(tag_of(free_word(0)), word_tag::free);
  EXPECT_EQ(tag_of(free_word(0xFFFF'FFFF)), word_tag::free);
  EXPECT_EQ(tag_of(fast_word(fast_prefix(4095, 15), 0x3FFF, -1)), word_tag::fast);
}

TEST(file_word, a_fresh_record_is_closed) { EXPECT_EQ(closed_word, 0U); }

TEST(file_word, every_incarnation_has_its_own_free_word) {
  EXPECT_NE(free_word(1), free_word(2));
  EXPECT_NE(free_word(1), free_word(0x8000'0001));
}

TEST(file_word, a_fast_word_gives_back_what_went_in) {
  const auto word = fast_word(fast_prefix(4095, 0x123), 0xABCDE, 100 * hour);
  const auto holder = holder_of(word);
  EXPECT_EQ(holder.session, 4095U);
  EXPECT_EQ(holder.generation, 0x3U);
  EXPECT_EQ(holder.sequence, 0xABCDEU & 0x3FFFU);
  EXPECT_EQ(expiry_of(word, 100 * hour - 1, longest), rounded_expiry(100 * hour));
}

TEST(file_word, an_expiry_is_rounded_towards_the_earlier) {
  for (std::int64_t at = 5 * hour; at < 5 * hour + 20'000'000; at += 333'333) {
    EXPECT_LE(rounded_expiry(at), at);
    EXPECT_GT(rounded_expiry(at), at - (std::int64_t{1} << expiry_shift));
    EXPECT_EQ(rounded_expiry(rounded_expiry(at)), rounded_expiry(at));
  }
}

TEST(file_word, an_expiry_survives_the_wrap_of_its_32_bits) {
  for (std::int64_t now = 200 * day; now < 220 * day; now += 7 * hour) {
    const auto word = fast_word(fast_prefix(1, 1), 1, now + hour);
    EXPECT_EQ(expiry_of(word, now, longest), rounded_expiry(now + hour));
    EXPECT_LT(expiry_of(word, now + 2 * hour, longest), now + 2 * hour);
  }
}

TEST(file_word, a_word_from_long_ago_is_over) {
  const auto word = fast_word(fast_prefix(1, 1), 1, day);
  EXPECT_LT(expiry_of(word, 110 * day, longest), 110 * day);
  EXPECT_LT(expiry_of(word, 180 * day, longest), 180 * day);
}

TEST(file_word, a_signature_fits_one_word_sequence_and_token_only) {
  const auto good = signature(fast_word(fast_prefix(1, 1), 7, hour), 7, 1000);
  EXPECT_NE(good, signature(fast_word(fast_prefix(1, 1), 7, 2 * hour), 7, 1000));
  EXPECT_NE(good, signature(fast_word(fast_prefix(1, 1), 7, hour), 8, 1000));
  EXPECT_NE(good, signature(fast_word(fast_prefix(1, 1), 7, hour), 7, 1001));
}

TEST(file_word, a_handle_tells_where_and_which_incarnation) {
  const auto handle = entry_handle | make_handle(0x3FFF'FFFF, 0x1'2345'6789);
  EXPECT_EQ(where_of(handle), 0x3FFF'FFFFU);
  EXPECT_EQ(incarnation_of(handle), 0x2345'6789U);
}

TEST(file_layout, what_the_uncontended_path_touches_is_one_cache_line) {
  EXPECT_LE(offsetof(record, waiter_count) + 4, 64U);
  EXPECT_EQ(sizeof(record) % 64, 0U);
}

TEST(file_layout, names_spread_over_shards_and_buckets) {
  std::array<int, shard_count> hits{};
  for (int i = 0; i < 64 * 100; ++i) ++hits[shard_of(hash_name(42, "order/" + std::to_string(i)))];
  for (const int each : hits) {
    EXPECT_GT(each, 40);
    EXPECT_LT(each, 200);
  }
  EXPECT_NE(hash_name(1, "a"), hash_name(2, "a"));
}

}  // namespace
}  // namespace holdfast::engines::file
