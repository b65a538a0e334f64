// What breaks here: the server itself. It is a fake that answers what real ones answer on rare days (LOADING,
// MISCONF, MOVED ...), or what no server should: garbage, hostile lengths, values of the wrong kind, nothing at all.
// What must hold: a typed error with lock and store in its sentence, in time; no crash, no memory taken for what was
// only announced, no grant without proof.
#include "faults/fake_redis.hpp"
#include "faults/faults.hpp"

#include <cctype>

namespace holdfast::testing {
namespace {

struct odd_answer {
  const char* title;
  std::string bytes;
  errc code;
};

void PrintTo(const odd_answer& odd, std::ostream* out) { *out << odd.title; }
std::string title_of(const ::testing::TestParamInfo<odd_answer>& info) { return info.param.title; }

void expect_about(const error& why, const fake_redis& server, std::string_view name) {
  EXPECT_NE(why.message().find(server.url()), std::string::npos) << why.message();
  EXPECT_NE(why.message().find(name), std::string::npos) << why.message();
  EXPECT_TRUE(std::ranges::none_of(why.message(), [](unsigned char c) { return std::iscntrl(c); }))
      << why.message();
}

// ---- answers to the request for a lock

void expect_failure_to_acquire(const odd_answer& odd) {
  fake_redis server;
  const auto a = client::open(server.url() + "?grace=10s", {.call_timeout = 200ms});
  server.answer("EVALSHA", odd.bytes);
  server.answer("EVAL", odd.bytes);
  mutex lock{a, "stock"};
  const auto begin = std::chrono::steady_clock::now();
  const auto tried = lock.try_acquire();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_TRUE(fails_with(tried, odd.code));
  if (!tried) expect_about(tried.error(), server, "stock");
}

class redis_odd_answers : public ::testing::TestWithParam<odd_answer> {};

TEST_P(redis_odd_answers, acquire_fails_with_the_right_code) {
  expect_failure_to_acquire(GetParam());
}

// The answers to a greeting are not looked at, if they are no errors.
class redis_wrong_kinds : public ::testing::TestWithParam<odd_answer> {};

TEST_P(redis_wrong_kinds, acquire_fails) { expect_failure_to_acquire(GetParam()); }

TEST_P(redis_odd_answers, opening_fails_when_the_greeting_is_answered_so) {
  fake_redis server;
  server.answer("HELLO", GetParam().bytes);
  server.answer("EVAL", GetParam().bytes);
  const auto opened = client::try_open(server.url());
  ASSERT_FALSE(opened);
  expect_about(opened.error(), server, "");
  if (GetParam().bytes.starts_with('-') && !GetParam().bytes.starts_with("-HF")) {
    EXPECT_EQ(opened.error().code(), GetParam().code);
  }
}

const auto hostile = errc::protocol;

INSTANTIATE_TEST_SUITE_P(
    rare, redis_odd_answers,
    ::testing::Values(
        odd_answer{"loading", "-LOADING Redis is loading the dataset in memory\r\n",
                   errc::unavailable},
        odd_answer{"misconf", "-MISCONF Redis is configured to save RDB snapshots\r\n",
                   errc::unavailable},
        odd_answer{"masterdown", "-MASTERDOWN Link with MASTER is down\r\n", errc::unavailable},
        odd_answer{"busy", "-BUSY Redis is busy running a script.\r\n", errc::unavailable},
        odd_answer{"moved", "-MOVED 3999 127.0.0.1:6381\r\n", errc::misconfigured},
        odd_answer{"crossslot", "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
                   errc::misconfigured},
        odd_answer{"noperm",
                   "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
                   errc::denied},
        odd_answer{
            "noperm_in_a_script_of_redis_7",
            "-ERR The user executing the script can't run this command or subcommand script: "
            "0, on @user_script:1.\r\n",
            errc::denied},
        odd_answer{
            "noperm_in_a_script_of_redis_7_2",
            "-ERR ACL failure in script: User app has no permissions to run the 'incr' command\r\n",
            errc::denied},
        odd_answer{"noperm_in_a_script_of_redis_6",
                   "-ERR Error running script (call to f_0): @user_script:1: -NOPERM The user "
                   "executing the script can't run this command or subcommand\r\n",
                   errc::denied},
        odd_answer{"oom_in_a_script_of_redis_6",
                   "-ERR Error running script (call to f_0): @user_script:1: -OOM command not "
                   "allowed when used memory > 'maxmemory'.\r\n",
                   errc::unavailable},
        odd_answer{"wrongtype_in_a_script_of_redis_6",
                   "-ERR Error running script (call to f_0): @user_script:9: WRONGTYPE Operation "
                   "against a key holding the wrong kind of value\r\n",
                   errc::misconfigured},
        odd_answer{"an_error_of_its_own", "-WHAT is this\r\n", errc::protocol}),
    title_of);

INSTANTIATE_TEST_SUITE_P(
    hostile, redis_odd_answers,
    ::testing::Values(
        odd_answer{"hostile_bulk_length", "$2147483647\r\n", hostile},
        odd_answer{"bulk_length_beyond_64_bits", "$99999999999999999999999\r\n", hostile},
        odd_answer{"negative_length", "$-7\r\n", hostile},
        odd_answer{"hostile_array_length", "*2147483647\r\n", hostile},
        odd_answer{"nested_arrays",
                   [] {
                     std::string deep;
                     for (int i = 0; i < 10'000; ++i) deep += "*1\r\n";
                     return deep;
                   }(),
                   hostile},
        odd_answer{"garbage", "HTTP/1.1 400 Bad Request\r\n\r\n", hostile},
        odd_answer{"zeroes", std::string(64, '\0'), hostile},
        odd_answer{"terminal_escapes", "-WHAT \x1b[2J\x1b]52;c;aGk=\x07\r\n", hostile}),
    title_of);

INSTANTIATE_TEST_SUITE_P(
    answers, redis_wrong_kinds,
    ::testing::Values(odd_answer{"text", "+OK\r\n", errc::protocol},
                      odd_answer{"bulk", "$2\r\nhi\r\n", errc::protocol},
                      odd_answer{"null", "$-1\r\n", errc::protocol},
                      odd_answer{"short_array", "*1\r\n:1\r\n", errc::protocol},
                      odd_answer{"array_of_text", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
                                 errc::protocol},
                      odd_answer{"negative", ":-5\r\n", errc::protocol}),
    title_of);

// ---- what is no answer at all

class redis_fake : public ::testing::Test {};

TEST_F(redis_fake, too_old_server) {
  for (const std::string words :
       {"-ERR unknown command 'HELLO'\r\n",
        "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n",
        "-NOPROTO unsupported protocol version\r\n"}) {
    fake_redis server;
    server.answer("HELLO", words);
    const auto opened = client::try_open(server.url());
    EXPECT_TRUE(fails_with(opened, errc::misconfigured));
    if (!opened) {
      EXPECT_NE(opened.error().message().find("6.0"), std::string::npos);
    }
  }
}

TEST_F(redis_fake, clock_that_is_none) {
  for (const std::string bytes :
       {"+OK\r\n", "*0\r\n", "*1\r\n$1\r\n1\r\n", "-ERR no\r\n", "$-1\r\n"}) {
    fake_redis server;
    server.answer("TIME", bytes);
    const auto opened = client::try_open(server.url());
    EXPECT_TRUE(fails_with(opened, errc::protocol)) << bytes;
    if (!opened) expect_about(opened.error(), server, "");
  }
}

TEST_F(redis_fake, silent_server) {
  fake_redis server;
  server.answer("HELLO", fake_redis::silence);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with(client::try_open(server.url()), errc::unavailable));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
}

TEST_F(redis_fake, server_that_hangs_up) {
  fake_redis server;
  server.answer("HELLO", fake_redis::hang_up);
  EXPECT_TRUE(fails_with(client::try_open(server.url()), errc::unavailable));
  server.answer("HELLO", "%0\r\n");
  const auto a = client::open(server.url() + "?grace=10s", {.call_timeout = 200ms});
  server.answer("EVALSHA", fake_redis::hang_up);
  mutex lock{a, "stock"};
  const auto tried = lock.try_acquire();
  ASSERT_FALSE(tried);
  EXPECT_EQ(tried.error().code(), errc::outcome_unknown);
  expect_about(tried.error(), server, "stock");
}

TEST_F(redis_fake, request_without_an_answer_is_unknown_and_not_acquired) {
  fake_redis server;
  const auto a = client::open(server.url() + "?grace=10s", {.call_timeout = 100ms});
  for (const auto* command : {"EVALSHA", "PUBSUB"}) server.answer(command, fake_redis::silence);
  mutex lock{a, "stock"};
  const auto tried = lock.try_acquire();
  EXPECT_TRUE(fails_with(tried, errc::outcome_unknown));
  if (!tried) expect_about(tried.error(), server, "stock");
}

TEST_F(redis_fake, server_that_forgets_scripts_for_ever_does_not_keep_us_busy) {
  fake_redis server;
  const auto a = client::open(server.url() + "?grace=10s", {.call_timeout = 200ms});
  server.answer("EVALSHA", "-NOSCRIPT No matching script. Please use EVAL.\r\n");
  server.answer("EVAL", "-NOSCRIPT No matching script. Please use EVAL.\r\n");
  mutex lock{a, "stock"};
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::protocol));
  EXPECT_LT(server.asked("EVAL"), 100U);
}

// The same for a release that no caller waits for, and for a command that is no script.
TEST_F(redis_fake, server_that_forgets_what_is_no_script) {
  fake_redis server;
  const auto a = client::open(server.url() + "?grace=200ms", {.call_timeout = 200ms});
  server.answer("EVALSHA", ":1700000000000000\r\n");
  mutex lock{a, "stock"};
  auto held = lock.try_acquire();
  ASSERT_TRUE(is_ok(held));
  for (const auto* command : {"EVALSHA", "EVAL", "TIME"})
    server.answer(command, "-NOSCRIPT again\r\n");
  *held = lease{};
  EXPECT_TRUE(wait_until([&] { return server.asked("EVAL") >= 2; }));
  EXPECT_FALSE(wait_until([&] { return server.asked("EVAL") > 100; }, 300ms)) << "it keeps us busy";
  EXPECT_FALSE(lock.try_acquire());
}

TEST_F(redis_fake, messages_that_make_no_sense_are_ignored) {
  fake_redis server;
  std::string pushes;
  for (const std::string text :
       {"", "g", "g x", "g 00 1 2 3 x 4", "l", "n ", "z", "g 0123456789abcdef0123456789abcdef-1",
        "g 0123456789abcdef0123456789abcdef-1 99999999999999999999 -1 -1 q 0", "o", "p"})
    pushes += fmt::format(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n{}\r\n", text.size(), text);
  pushes += ">1\r\n$3\r\nfoo\r\n>0\r\n>3\r\n:1\r\n:2\r\n:3\r\n";
  server.answer("SUBSCRIBE", pushes);
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
}

}  // namespace
}  // namespace holdfast::testing
