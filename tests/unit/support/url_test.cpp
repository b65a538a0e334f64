#include <chrono>

#include <holdfast/url.hpp>

#include "support/expect.hpp"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using testing::fails_with;
using testing::is_ok;

store_url parsed(std::string_view text) { return store_url::parse(text).value(); }

TEST(url, opaque_paths_need_no_slashes) {
  EXPECT_EQ(parsed("memory:").scheme(), "memory");
  EXPECT_EQ(parsed("memory:").path(), "");
  EXPECT_EQ(parsed("memory:shared").path(), "shared");
  EXPECT_EQ(parsed("file:/var/lib/x y").path(), "/var/lib/x y");
  EXPECT_EQ(parsed("file:///var/lib/x").path(), "/var/lib/x");
  EXPECT_EQ(parsed("file:/srv/a@b").path(), "/srv/a@b");
  EXPECT_TRUE(parsed("file:///x").endpoints().empty());
  EXPECT_EQ(parsed("FILE:x").scheme(), "file");
}

TEST(url, hosts_ports_and_user_are_taken_apart) {
  const auto url = parsed("redis+sentinel://bob:s%40crt@a:1,[::1]:65535,b.example/0?x=1%20y&z=");
  EXPECT_EQ(url.scheme(), "redis+sentinel");
  EXPECT_EQ(url.user(), "bob");
  EXPECT_TRUE(url.has_secret());
  EXPECT_EQ(url.secret(), "s@crt");
  ASSERT_EQ(url.endpoints().size(), 3U);
  EXPECT_EQ(url.endpoints()[0].host, "a");
  EXPECT_EQ(url.endpoints()[0].port, 1);
  EXPECT_EQ(url.endpoints()[1].host, "::1");
  EXPECT_EQ(url.endpoints()[1].port, 65535);
  EXPECT_EQ(url.endpoints()[2].host, "b.example");
  EXPECT_FALSE(url.endpoints()[2].port);
  EXPECT_EQ(url.path(), "/0");
  EXPECT_EQ(*url.find("x"), "1 y");
  EXPECT_EQ(*url.find("z"), "");
  EXPECT_EQ(url.find("y"), nullptr);
}

TEST(url, password_without_user_is_a_password) {
  const auto url = parsed("redis://:secret@host");
  EXPECT_EQ(url.user(), "");
  EXPECT_EQ(url.secret(), "secret");
}

TEST(url, what_is_no_address_is_refused) {
  const std::string long_text = "file:" + std::string(5000, 'x');
  const std::string nul{"file:/a\0b", 9};
  for (const std::string_view text : {
           std::string_view{""},
           std::string_view{"no-scheme"},
           std::string_view{":x"},
           std::string_view{"1file:x"},
           std::string_view{"fi le:x"},
           std::string_view{"redis://h:0"},
           std::string_view{"redis://h:65536"},
           std::string_view{"redis://h:99999999999999999999"},
           std::string_view{"redis://h:-1"},
           std::string_view{"redis://h:"},
           std::string_view{"redis://h:8o"},
           std::string_view{"redis://h:+80"},
           std::string_view{"redis://a,,b"},
           std::string_view{"redis://a,"},
           std::string_view{"redis://,a"},
           std::string_view{"redis://::1"},
           std::string_view{"redis://[::1"},
           std::string_view{"redis://[::1]x"},
           std::string_view{"redis://[zz]"},
           std::string_view{"redis://[]"},
           std::string_view{"redis://ho st"},
           std::string_view{"redis://h\xc3\xb6st"},
           std::string_view{"redis://user@"},
           std::string_view{"redis://u:p:q@h"},
           std::string_view{"redis://u@v@h"},
           std::string_view{"redis://h/x@y"},
           std::string_view{"file:%"},
           std::string_view{"file:%4"},
           std::string_view{"file:%zz"},
           std::string_view{"file:%00"},
           std::string_view{"file:%0a"},
           std::string_view{"file:%7f"},
           std::string_view{"file:%c2%80"},
           std::string_view{"file:%ff"},
           std::string_view{"file:a\nb"},
           std::string_view{nul},
           std::string_view{"file:a#b"},
           std::string_view{"file:a?x"},
           std::string_view{"file:a?=1"},
           std::string_view{"file:a?"},
           std::string_view{"file:a?x=1&x=2"},
           std::string_view{"file:a?x=1&"},
           std::string_view{"file:a?x=%00"},
           std::string_view{"file:a?X%20=1"},
           std::string_view{long_text},
       }) {
    EXPECT_TRUE(fails_with(store_url::parse(text), errc::misconfigured)) << text;
  }
  EXPECT_TRUE(is_ok(store_url::parse("file:" + std::string(4091, 'x'))));
  EXPECT_TRUE(is_ok(store_url::parse("redis://" + std::string(253, 'h'))));
  EXPECT_FALSE(store_url::parse("redis://" + std::string(254, 'h')));
}

TEST(url, no_sentence_and_no_str_shows_the_password) {
  for (const std::string_view text : {
           "redis://bob:CANARY@host",
           "redis://bob:CANARY@host:bad",
           "redis://bob:CANARY@",
           "redis://bob:CANARY/x@host",
           "redis://bob:CANARY?x@host",
           "redis://bob:CANARY#@host",
           "redis://bob:1/CANARY@host",
           "redis://bob:CANARY%zz@host",
           "redis://bob:CANARY%00@host",
           "redis://bob:CANARY:x@host",
           "redis://bob:x@CANARY@host",
           "redis://bob:x?CANARY=@host",
           "redis://bob:CANARY@[host",
           "redis://bob:CANARY@host?a=1&a=2",
           "redis://bob:x,CANARY@h",
           "redis://h?password=CANARY",
           "redis://h?auth-token=CANARY&x=1",
       }) {
    const auto url = store_url::parse(text);
    const auto shown = url ? url->str() : url.error().message();
    EXPECT_EQ(shown.find("CANARY"), std::string::npos) << shown;
    if (!url) continue;
    const auto number = url->integer("password", 1, 1, 2);
    if (!number) {
      EXPECT_EQ(number.error().message().find("CANARY"), std::string::npos);
    }
  }
}

TEST(url, where_a_password_lies_is_no_secret) {
  const auto url = parsed("redis://bob@host?password_file=/etc/secret&password_env=SECRET");
  EXPECT_FALSE(url.has_secret());
  EXPECT_EQ(url.str(), "redis://bob@host?password_env=SECRET&password_file=/etc/secret");
}

TEST(url, str_reads_back_as_the_same_address) {
  for (const std::string_view text :
       {"memory:", "memory:a%2Fb%3Fc%25", "file:/a b/c", "file:/caf%C3%A9",
        "redis://a:1,[::1]:2,b/0?x=1&y=2%263", "redis://bob@host/x%3Fy"}) {
    const auto first = parsed(text);
    const auto second = parsed(first.str());
    EXPECT_EQ(second.path(), first.path()) << text;
    EXPECT_EQ(second.user(), first.user()) << text;
    EXPECT_EQ(second.str(), first.str()) << text;
  }
  EXPECT_EQ(parsed("redis://bob:x@h:1/2?a=b").str(), "redis://bob:***@h:1/2?a=b");
}

TEST(url, numbers_are_checked_against_their_range) {
  const auto url = parsed("x:?good=7&low=-1&huge=99999999999999999999&word=ten&half=1.5&none=");
  EXPECT_EQ(url.integer("good", 1, 0, 10).value(), 7);
  EXPECT_EQ(url.integer("absent", 3, 0, 10).value(), 3);
  for (const auto* key : {"low", "huge", "word", "half", "none"}) {
    EXPECT_TRUE(fails_with(url.integer(key, 1, 0, 10), errc::misconfigured)) << key;
  }
}

TEST(url, durations_are_checked_against_their_range) {
  const auto url = parsed("x:?good=2s&zero=0&nan=nan&inf=inf&huge=1e999s&minus=-1s&long=9999h");
  EXPECT_EQ(url.duration("good", 1s, 1s, 1h).value(), 2s);
  EXPECT_EQ(url.duration("absent", 3s, 1s, 1h).value(), 3s);
  for (const auto* key : {"zero", "nan", "inf", "huge", "minus", "long"}) {
    EXPECT_TRUE(fails_with(url.duration(key, 1s, 1s, 1h), errc::misconfigured)) << key;
  }
}

TEST(url, unknown_options_are_named) {
  const auto url = parsed("file:?synk=1");
  EXPECT_TRUE(is_ok(url.allow_only({"sync", "synk"})));
  const auto refused = url.allow_only({"sync", "mode"});
  ASSERT_TRUE(fails_with(refused, errc::misconfigured));
  EXPECT_NE(refused.error().message().find("synk"), std::string::npos);
  EXPECT_FALSE(url.allow_only({}));
}

}  // namespace
}  // namespace holdfast
