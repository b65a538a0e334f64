// What breaks here: the server itself. It is a fake that answers what no server should: garbage, senseless lengths,
// answers to other questions, lists without the node that it has just made, or nothing at all. What must hold: a typed
// error that names lock and store, in time; no crash, no memory taken for what was only announced, no grant without
// proof.
#include "faults/fake_zookeeper.hpp"
#include "faults/zk_faults.hpp"

#include "engines/zk/engine.hpp"
#include "support/engine_fixture.hpp"

#include <cctype>

namespace holdfast::testing {
namespace {

using fake = fake_zookeeper;

struct odd_reply {
  const char* title;
  fake::answerer answer;
};

void PrintTo(const odd_reply& odd, std::ostream* out) { *out << odd.title; }
std::string name_of_reply(const ::testing::TestParamInfo<odd_reply>& info) {
  return info.param.title;
}

void expect_typed(const error& why, const fake& server, std::string_view name) {
  EXPECT_TRUE(why.code() == errc::protocol || why.code() == errc::unavailable ||
              why.code() == errc::outcome_unknown)
      << to_string(why.code()) << ": " << why.message();
  EXPECT_NE(why.message().find(server.url()), std::string::npos) << why.message();
  EXPECT_NE(why.message().find(name), std::string::npos) << why.message();
  EXPECT_TRUE(std::ranges::none_of(why.message(), [](unsigned char c) { return std::iscntrl(c); }))
      << why.message();
}

class zk_odd_replies : public ::testing::TestWithParam<odd_reply> {};

TEST_P(zk_odd_replies, to_a_look_are_an_error) {
  fake server;
  const auto a = client::open(server.url(), {.call_timeout = 300ms});
  server.answer(fake::children, GetParam().answer);
  mutex lock{a, "stock"};
  const auto begin = std::chrono::steady_clock::now();
  const auto tried = lock.try_acquire();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  ASSERT_FALSE(tried);
  expect_typed(tried.error(), server, "stock");
  const auto seen = a.inspect("stock");
  ASSERT_FALSE(seen);
  expect_typed(seen.error(), server, "");
}

TEST_P(zk_odd_replies, to_a_creation_are_an_error) {
  fake server;
  const auto a = client::open(server.url(), {.call_timeout = 300ms});
  server.answer(fake::create, GetParam().answer);
  mutex lock{a, "stock"};
  const auto begin = std::chrono::steady_clock::now();
  const auto tried = lock.acquire({.wait = 1s});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  ASSERT_FALSE(tried);
  EXPECT_NE(tried.error().message().find("stock"), std::string::npos) << tried.error().message();
}

TEST_P(zk_odd_replies, to_the_greeting_are_an_error) {
  fake server;
  server.answer(fake::greeting, GetParam().answer);
  const auto begin = std::chrono::steady_clock::now();
  const auto opened = client::try_open(server.url());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  ASSERT_FALSE(opened);
  expect_typed(opened.error(), server, "");
}

INSTANTIATE_TEST_SUITE_P(
    hostile, zk_odd_replies,
    ::testing::Values(
        odd_reply{"nothing", [](auto) { return std::string{}; }},
        odd_reply{"text", [](auto) { return std::string{"HTTP/1.1 400 Bad Request\r\n\r\n"}; }},
        odd_reply{"length_zero", [](auto) { return fake::number(0); }},
        odd_reply{"length_too_short", [](auto) { return fake::number(3) + "abc"; }},
        odd_reply{"length_negative", [](auto) { return fake::number(-5) + "abcdefgh"; }},
        odd_reply{"length_enormous", [](auto) { return fake::number(0x7FFFFFFF) + "abcdefgh"; }},
        odd_reply{"header_of_another_request",
                  [](auto xid) { return fake::reply(xid + 17, 0, fake::stat()); }},
        odd_reply{"header_alone", [](auto xid) { return fake::reply(xid, 0, {}); }},
        odd_reply{"body_of_garbage",
                  [](auto xid) { return fake::reply(xid, 0, std::string(40, '\xee')); }},
        odd_reply{"list_longer_than_the_frame",
                  [](auto xid) { return fake::reply(xid, 0, fake::number(0x7FFFFFFF)); }},
        odd_reply{"list_of_negative_length",
                  [](auto xid) { return fake::reply(xid, 0, fake::number(-7) + fake::stat()); }},
        odd_reply{"text_longer_than_the_frame",
                  [](auto xid) {
                    return fake::reply(xid, 0, fake::number(1) + fake::number(1'000'000) + "ab");
                  }},
        odd_reply{"error_of_the_future", [](auto xid) { return fake::reply(xid, -999, {}); }}),
    name_of_reply);

class zk_fake : public ::testing::Test {};

std::string made(std::int32_t xid, std::string_view path, std::int64_t session) {
  std::string stat;
  jute::writer to{stat};
  to.big(5), to.big(5), to.big(0), to.big(0), to.integer(0), to.integer(0), to.integer(0);
  to.big(session), to.integer(0), to.integer(0), to.big(5);
  return fake::reply(xid, 0, fake::text(path) + stat);
}

// It says that it has made the node, and shows a folder without it: that is no lock.
TEST_F(zk_fake, node_that_is_in_no_list_is_no_lock) {
  fake server;
  const auto a = client::open(server.url(), {.call_timeout = 1s});
  server.answer(fake::create,
                [](auto xid) { return made(xid, "/stock/_c_x-lock-0000000000", 77); });
  server.answer(fake::children,
                [](auto xid) { return fake::reply(xid, 0, fake::number(0) + fake::stat()); });
  mutex lock{a, "stock"};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(lock.acquire({.wait = 500ms}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
  EXPECT_LT(server.asked(fake::create), 1000U) << "not as fast as it can";
}

// Of a session that is not ours.
TEST_F(zk_fake, node_of_another_session_is_no_lock) {
  fake server;
  const auto a = client::open(server.url(), {.call_timeout = 1s});
  server.answer(fake::create,
                [](auto xid) { return made(xid, "/stock/_c_x-lock-0000000000", 78); });
  server.answer(fake::children, [](auto xid) {
    return fake::reply(xid, 0, fake::number(1) + fake::text("_c_x-lock-0000000000") + fake::stat());
  });
  mutex lock{a, "stock"};
  EXPECT_FALSE(lock.acquire({.wait = 500ms}));
}

// The answer to a multi of one check that was refused: Ok in its header, and the refusal inside.
std::string refused_check(std::int32_t xid, jute::code why) {
  std::string out;
  jute::writer to{out};
  to.integer(-1), to.boolean(false), to.integer(0), to.integer(static_cast<std::int32_t>(why));
  to.integer(-1), to.boolean(true), to.integer(-1);
  return fake::reply(xid, 0, out);
}

// A majority's word that the session is over, or one server's that it has too much to do, is no proof that it lives.
TEST_F(zk_fake, refusal_inside_a_multi_is_no_proof_of_the_session) {
  for (const auto why :
       {jute::code::session_expired, jute::code::unknown_session, jute::code::throttled}) {
    SCOPED_TRACE(jute::name_of(why));
    fake server;
    raw_client a{engines::zk::make_engine, server.url(), system_clock(), 1};
    auto ask = a.ask("stock");
    const auto node = fmt::format("_c_{:016x}{:016x}-{:x}-lock-0000000000", ask.owner.client[0],
                                  ask.owner.client[1], ask.owner.sequence);
    server.answer(fake::create, [=](auto xid) { return made(xid, "/stock/" + node, 77); });
    server.answer(fake::children, [=](auto xid) {
      return fake::reply(xid, 0, fake::number(1) + fake::text(node) + fake::stat());
    });
    const auto got = a.verbs->enter(ask, call_within(patience));
    ASSERT_TRUE(got && got->what == entered::kind::granted);
    server.answer(fake::multi, [=](auto xid) { return refused_check(xid, why); });
    const auto before = std::chrono::steady_clock::now();
    const auto renewed = a.verbs->renew({}, call_within(1s));
    EXPECT_FALSE(renewed && renewed->proven_at >= before);
    EXPECT_FALSE(a.verbs->inspect("stock", call_within(1s))) << "it is read behind an agreement";
  }
}

// It may have made the node: core has to ask, not to come again with another one.
TEST_F(zk_fake, creation_that_is_answered_unreadably_is_in_doubt) {
  fake server;
  raw_client a{engines::zk::make_engine, server.url(), system_clock(), 1};
  server.answer(fake::create, [](auto xid) { return fake::reply(xid, 0, "no stat"); });
  EXPECT_TRUE(fails_with(a.verbs->enter(a.ask("stock"), call_within(1s)), errc::outcome_unknown));
}

// Bounds of sessions differ between servers. A longer one makes no proof newer.
TEST_F(zk_fake, session_that_grows_makes_no_older_proof_last_longer) {
  fake server;
  fault_proxy net{server.port()};
  raw_client a{engines::zk::make_engine, zk_url(net), system_clock(), 1};  // of 10 s
  const auto reconnect = [&](std::int32_t length) {
    const auto before = server.asked(fake::greeting);
    server.answer(fake::greeting, [=](auto) { return fake::welcome(length, 77); });
    net.cut();
    // A ping, which proves nothing.
    return wait_until([&] {
      return server.asked(fake::greeting) > before && a.verbs->renew({}, call_within(1s));
    });
  };
  const auto known = [&] {  // as upkeep is told, which does not ask
    const grant held;
    std::vector<renewal> upkeep{renewal{.held = &held}};
    promised<session_proof> done;
    const auto limits = call_within(1s);
    a.verbs->start_renew(upkeep, limits, done);
    return done.get().value_or(session_proof{}).proven_at;
  };
  ASSERT_TRUE(reconnect(4'000));
  static_cast<void>(a.verbs->inspect("stock", call_within(1s)));  // asks for a proof
  const auto proven = known();
  ASSERT_NE(proven, steady_time{});
  ASSERT_TRUE(reconnect(10'000));
  EXPECT_EQ(known(), proven);
}

// So does a server that took the session up in the very moment of its end. The next connection would be told.
TEST_F(zk_fake, connection_that_never_answers_is_left_soon_also_where_there_is_one_server) {
  fake server;
  fault_proxy net{server.port()};
  server.answer(fake::greeting, [](auto) { return fake::welcome(60'000, 77); });
  const raw_client a{engines::zk::make_engine, zk_url(net), system_clock(), 1};
  const auto before = server.asked(fake::greeting);
  server.answer(fake::ping, [](auto) { return std::string{}; });
  net.cut();
  EXPECT_TRUE(wait_until([&] { return server.asked(fake::greeting) >= before + 2; }));
}

// Unasked for: what cannot be read is left alone, and the answer that follows is heard.
TEST_F(zk_fake, senseless_events_are_ignored) {
  fake server;
  const auto a = client::open(server.url(), {.call_timeout = 1s});
  server.answer(fake::children, [](auto xid) {
    return fake::reply(-1, 0, {}) + fake::reply(-1, 0, std::string(30, '\xee')) +
           fake::reply(-1, 0, fake::number(99) + fake::number(3) + fake::text("/stock")) +
           fake::reply(-1, 0, fake::number(2) + fake::number(3) + fake::text("/not/ours")) +
           fake::reply(xid, -101, {});
  });
  const auto seen = a.inspect("stock");
  ASSERT_TRUE(is_ok(seen));
  EXPECT_TRUE(seen->holders.empty());
}

// A session of no length, or without a number, is none. One of a millisecond is, and no lease lives on it.
TEST_F(zk_fake, session_that_ends_at_once_is_refused) {
  fake server;
  server.answer(fake::greeting, [](auto) { return fake::welcome(0, 0); });
  EXPECT_TRUE(fails_with(client::try_open(server.url()), errc::unavailable));
  server.answer(fake::greeting, [](auto) { return fake::welcome(-1000, 77); });
  EXPECT_TRUE(fails_with(client::try_open(server.url()), errc::unavailable));
  server.answer(fake::greeting, [](auto) { return fake::welcome(1, 77); });
  const auto brief = client::try_open(server.url());
  if (brief) {
    mutex lock{*brief, "stock"};
    EXPECT_FALSE(lock.acquire({.wait = 300ms}));
  }
}

}  // namespace
}  // namespace holdfast::testing
