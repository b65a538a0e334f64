#include "engines/common/store_address.hpp"

#include "support/expect.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines {
namespace {

using testing::fails_with;
using testing::is_ok;

store_url parsed(std::string_view text) { return store_url::parse(text).value(); }

TEST(store_address, tls_has_the_same_options_on_every_store) {
  const auto url = parsed("x://host/?ca_file=/ca&cert_file=/cert&key_file=/key&server_name=other");
  const auto files = read_tls_files(url, true, "host", "it is off");
  ASSERT_TRUE(is_ok(files));
  EXPECT_EQ(files->ca_file, "/ca");
  EXPECT_EQ(files->cert_file, "/cert");
  EXPECT_EQ(files->key_file, "/key");
  EXPECT_EQ(files->server_name, "other");
  EXPECT_EQ(read_tls_files(parsed("x://host/"), true, "host", "").value().server_name, "host");
}

TEST(store_address, options_for_tls_without_tls_are_refused) {
  for (const auto* option : {"ca_file", "cert_file", "key_file", "server_name"}) {
    const auto url = parsed(std::string{"x://host/?"} + option + "=a");
    EXPECT_TRUE(has_tls_options(url));
    EXPECT_TRUE(fails_with(read_tls_files(url, false, "host", "it is off"), errc::misconfigured));
  }
  EXPECT_FALSE(has_tls_options(parsed("x://host/")));
}

TEST(store_address, user_without_a_password_is_refused_where_there_is_no_such_thing) {
  EXPECT_TRUE(fails_with(read_login(parsed("x://me@host/")), errc::misconfigured));
  EXPECT_TRUE(is_ok(read_login(parsed("x://me@host/"), true)));
  const auto who = read_login(parsed("x://me:secret@host/"));
  ASSERT_TRUE(is_ok(who));
  EXPECT_EQ(who->user, "me");
  EXPECT_EQ(who->password, "secret");
}

TEST(store_address, sentence_shows_no_password) {
  const auto why = bad_address(parsed("x://me:secret@host/"), "is wrong.");
  EXPECT_EQ(why.message().find("secret"), std::string::npos);
  EXPECT_TRUE(why.is_not_done());
}

}  // namespace
}  // namespace holdfast::engines
