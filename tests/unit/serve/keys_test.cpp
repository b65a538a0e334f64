#include "server/keys.hpp"

#include "support/expect.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace holdfast::server {
namespace {

using testing::fails_with;
using testing::is_ok;
using testing::temp_dir;

// SHA-256 of "test" and of "admin-key", computed by another program (sha256sum).
const std::string hash_of_test = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const std::string other_hash(64, 'a');

std::string line(const std::string& begin, const std::string& hash = hash_of_test) {
  return begin + ' ' + hash + '\n';
}

TEST(serve_keys, a_key_is_found_by_its_secret_and_not_by_its_hash) {
  const auto ring = key_ring::parse(line("billing acquire,inspect billing/*"), "keys");
  ASSERT_TRUE(is_ok(ring));
  const auto* found = ring->find("test");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name, "billing");
  EXPECT_EQ(found->prefix, "billing/");
  for (const std::string shown : {"", "Test", "test ", " test", "tes", "testt", "billing"})
    EXPECT_EQ(ring->find(shown), nullptr) << shown;
  EXPECT_EQ(ring->find(hash_of_test), nullptr);
  EXPECT_EQ(ring->find(std::string("test\0", 5)), nullptr);
}

TEST(serve_keys, scopes_are_what_the_line_says_and_for_its_names_only) {
  const auto ring =
      key_ring::parse(line("a acquire team/*") + line("b inspect,break *", other_hash), "keys");
  ASSERT_TRUE(is_ok(ring));
  const auto& acquirer = ring->all().at(0);
  EXPECT_TRUE(acquirer.may(scope::acquire, "team/x"));
  EXPECT_TRUE(acquirer.may(scope::any_key, "team/x"));
  EXPECT_FALSE(acquirer.may(scope::inspect, "team/x"));
  EXPECT_FALSE(acquirer.may(scope::break_locks, "team/x"));
  for (const auto* name : {"team", "teams/x", "x/team/x", "Team/x", ""})
    EXPECT_FALSE(acquirer.may(scope::acquire, name)) << name;
  const auto& operator_key = ring->all().at(1);
  EXPECT_TRUE(operator_key.may(scope::inspect, "team/x"));
  EXPECT_TRUE(operator_key.may(scope::break_locks, "anything"));
  EXPECT_FALSE(operator_key.may(scope::acquire, "anything"));
}

TEST(serve_keys, comments_and_spaces_are_no_keys) {
  const auto ring = key_ring::parse(
      "\n# a comment\n   # another\n\t\r\n  x\tacquire \t *  " + hash_of_test + "\r\n", "keys");
  ASSERT_TRUE(is_ok(ring));
  EXPECT_EQ(ring->all().size(), 1U);
  EXPECT_EQ(ring->all().front().prefix, "");
}

TEST(serve_keys, a_line_that_is_none_stops_the_service_and_is_named) {
  const std::string good = line("first acquire *");
  for (const auto& bad : std::vector<std::string>{
           "x acquire *\n", "x acquire\n", "x acquire * " + hash_of_test + " more\n",
           line("x acquired *", other_hash), line("x , *", other_hash),
           line("x acquire;inspect *", other_hash), line("x acquire team", other_hash),
           line("x acquire *team", other_hash), line("x acquire te*am*", other_hash),
           line("x/y acquire *", other_hash), line("\xc3\xa9 acquire *", other_hash),
           line(std::string(65, 'x') + " acquire *", other_hash),
           line("x acquire *", other_hash.substr(1)), line("x acquire *", other_hash + "a"),
           line("x acquire *", std::string(64, 'A')), line("x acquire *", std::string(64, 'g')),
           line("first acquire *", other_hash),  // the name again
           line("second acquire *"),             // the key again
       }) {
    const auto ring = key_ring::parse(good + bad, "/etc/keys");
    EXPECT_TRUE(fails_with(ring, errc::misconfigured)) << bad;
    if (ring) continue;
    EXPECT_NE(ring.error().message().find("line 2"), std::string::npos) << ring.error().message();
    // A key that was written there by mistake must not get into a log.
    EXPECT_EQ(ring.error().message().find("acquired"), std::string::npos);
    EXPECT_EQ(ring.error().message().find(hash_of_test), std::string::npos);
  }
}

// A file that was emptied must not open the service to everybody.
TEST(serve_keys, a_file_without_a_key_is_refused) {
  for (const auto* text : {"", "\n\n", "# nothing yet\n"})
    EXPECT_TRUE(fails_with(key_ring::parse(text, "keys"), errc::misconfigured));
}

TEST(serve_keys, a_file_that_others_may_read_is_refused) {
  const temp_dir folder;
  const auto file = folder.file("keys");
  std::ofstream{file} << line("x acquire *");
  ::chmod(file.c_str(), 0600);
  EXPECT_TRUE(is_ok(key_ring::read(file)));
  for (const mode_t mode : {0640U, 0604U, 0660U, 0602U, 0777U}) {
    ::chmod(file.c_str(), mode);
    EXPECT_TRUE(fails_with(key_ring::read(file), errc::misconfigured)) << std::oct << mode;
  }
  EXPECT_TRUE(fails_with(key_ring::read(folder.file("none")), errc::misconfigured));
  EXPECT_TRUE(fails_with(key_ring::read(folder.path().string()), errc::misconfigured));
}

TEST(serve_keys, a_made_key_fits_its_own_line) {
  const auto made = make_key("ci", "acquire,break", "ci/*");
  ASSERT_TRUE(is_ok(made));
  EXPECT_EQ(made->secret.size(), 64U);
  EXPECT_EQ(made->line.find(made->secret), std::string::npos);
  const auto ring = key_ring::parse(made->line + '\n', "keys");
  ASSERT_TRUE(is_ok(ring));
  const auto* found = ring->find(made->secret);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(found->may(scope::break_locks, "ci/x"));
  EXPECT_FALSE(found->has(scope::inspect));
  EXPECT_NE(make_key("ci", "acquire", "*")->secret, made->secret);
  EXPECT_TRUE(fails_with(make_key("a b", "acquire", "*"), errc::misconfigured));
  EXPECT_TRUE(fails_with(make_key("a", "all", "*"), errc::misconfigured));
  EXPECT_TRUE(fails_with(make_key("a", "acquire", "x"), errc::misconfigured));
}

TEST(serve_keys, without_keys_everybody_may_do_everything) {
  const key_ring none;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.anybody().may(scope::break_locks, "anything"));
  EXPECT_EQ(none.find(""), nullptr);
}

// The whole digest is compared whatever stands at its front: a key that shares the beginning of another's hash is none.
TEST(serve_keys, a_hash_that_differs_in_one_digit_is_another_key) {
  for (std::size_t at = 0; at < hash_of_test.size(); ++at) {
    auto near = hash_of_test;
    near[at] = near[at] == '0' ? '1' : '0';
    const auto ring = key_ring::parse(line("x acquire *", near), "keys");
    ASSERT_TRUE(is_ok(ring));
    EXPECT_EQ(ring->find("test"), nullptr) << at;
  }
}

}  // namespace
}  // namespace holdfast::server
