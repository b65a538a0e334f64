#include "engines/mysql/errors.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines::mysql {
namespace {

settings somewhere() {
  settings out;
  out.url = "mysql://here/db";
  return out;
}

// The driver's own numbers are no word of the server: whatever was sent may have been executed.
TEST(mysql_errors_of_the_driver, leave_a_doubt_about_what_may_have_been_sent) {
  for (const unsigned first : {2000U, 5000U})
    for (unsigned code = first; code < first + 1000; ++code) {
      EXPECT_TRUE(is_lost_connection(code)) << code;
      const auto why = explain({.code = code, .may_have_changed = true}, "stock", somewhere());
      EXPECT_EQ(why.code(), errc::outcome_unknown) << code;
      EXPECT_FALSE(why.is_not_done()) << code;
    }
}

TEST(mysql_errors_of_the_driver, are_certain_about_what_changes_nothing) {
  for (const unsigned code : {2008U, 2013U, 2020U, 2031U, 5014U}) {
    const auto why = explain({.code = code}, "stock", somewhere());
    EXPECT_EQ(why.code(), errc::unavailable) << code;
    EXPECT_TRUE(why.is_not_done()) << code;
  }
}

// Before there is a connection nothing was asked for.
TEST(mysql_errors_of_the_driver, are_explained_while_it_connects) {
  const auto said = [](unsigned code) {
    return explain({.code = code, .is_connecting = true}, {}, somewhere());
  };
  for (unsigned code = 2000; code < 3000; ++code) EXPECT_TRUE(said(code).is_not_done()) << code;
  EXPECT_EQ(said(2002).code(), errc::unavailable);
  EXPECT_EQ(said(2003).code(), errc::unavailable);
  EXPECT_EQ(said(2013).code(), errc::unavailable);
  EXPECT_EQ(said(2026).code(), errc::misconfigured);
  EXPECT_EQ(said(2059).code(), errc::misconfigured);
}

TEST(mysql_errors_of_the_server, are_its_word_that_nothing_was_done) {
  for (const unsigned code : {1142U, 1205U, 1213U, 1290U, 1317U, 1064U})
    EXPECT_TRUE(
        explain({.code = code, .may_have_changed = true}, "stock", somewhere()).is_not_done())
        << code;
}

// It executed the statement, and then something went wrong.
TEST(mysql_errors_of_the_server, leave_a_doubt_about_a_commit) {
  EXPECT_FALSE(
      explain({.code = 1205, .may_have_changed = true, .is_commit = true}, "stock", somewhere())
          .is_not_done());
  EXPECT_FALSE(
      explain({.code = 1180, .may_have_changed = true}, "stock", somewhere()).is_not_done());
}

}  // namespace
}  // namespace holdfast::engines::mysql
