// What breaks here: messages that tell of something else than the client that hears them thinks, and messages of a
// server whose clock is not known. What must hold: a lease is lost by no message but its own, and none is believed in
// for longer than the store does.
#include "faults/redis_contract.hpp"

namespace holdfast::testing {
namespace {

class redis_messages : public redis_contract {
 protected:
  static request one_of_two(raw_client& by, nanoseconds ttl) {
    auto out = by.ask("seats");
    out.mode = lock_mode::permits;
    out.weight = 1;
    out.capacity = 2;
    out.ttl = ttl;
    return out;
  }
  bool has_ended(const owner_id& owner) const {
    return redis(
               "EVAL",
               "local c = redis.call('TIME') local ends = redis.call('ZSCORE', KEYS[1], ARGV[1]) "
               "return ends and c[1] * 1000 + math.floor(c[2] / 1000) > tonumber(ends) and 1 or 0",
               "1", "hf:e:seats", to_string(owner)) == "1";
  }
};

// It was let in by a message that it did not read, and that grant has ended. The script that finds out is the one that
// lets it in again.
TEST_F(redis_messages, end_of_a_grant_that_nobody_took_is_not_the_loss_of_the_next) {
  auto a = raw(1), b = raw(2);
  const auto stays = take(b, one_of_two(b, 60s)), goes = take(b, one_of_two(b, 60s));
  const auto ask = one_of_two(a, 50ms);
  queue(a, ask);
  ASSERT_TRUE(is_ok(b.verbs->release(goes, call_within(patience))));
  ASSERT_TRUE(wait_until([&] { return has_ended(ask.owner); })) << "let in, and over";
  auto again = ask;
  again.ttl = 60s;
  const auto held = take(a, again);
  EXPECT_TRUE(is_valid(a, held));
  hear(a);
  EXPECT_TRUE(a.listener.lost().empty()) << a.listener.lost().front().second;
  EXPECT_EQ(renewed(a, held).answer, renewal::verdict::held);
  EXPECT_EQ(renewed(b, stays).answer, renewal::verdict::held);
}

// The loss of another client's grant is told all the same.
TEST_F(redis_messages, end_of_a_grant_is_told_to_its_holder) {
  auto a = raw(1), b = raw(2);
  const auto brief = take(a, one_of_two(a, 50ms));
  take(b, one_of_two(b, 60s));
  ASSERT_TRUE(wait_until([&] { return has_ended(brief.owner); }));
  take(b, one_of_two(b, 60s));
  EXPECT_TRUE(wait_until([&] { return a.listener.lost().size() == 1; }));
  EXPECT_EQ(a.listener.lost().front().first, brief.owner);
}

// Without a grace no client asks for the time on a new connection, which may be to another server.
TEST_F(redis_messages, grant_message_says_nothing_until_the_clock_of_its_server_is_known) {
  auto a = raw(1, "grace=0"), b = raw(2, "grace=0");
  take(b, "stock");
  const auto ask = asked(a, "stock", lock_mode::exclusive);
  auto place = queue(a, ask);
  const auto channel = "hf:c:" + to_string(ask.owner).substr(0, 32);
  const auto told = [&] {
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    const auto message = fmt::format("g {} {} 60000 {} x {}", to_string(ask.owner),
                                     place.handle + 1000, now.count(), rw_capacity);
    auto waiting = std::async(std::launch::async,
                              [&] { return a.verbs->await(place, call_within(patience)); });
    wait_until([&] {
      static_cast<void>(redis("PUBLISH", channel, message));
      return waiting.wait_for(10ms) == std::future_status::ready;
    });
    return waiting.get()->is_granted;
  };
  EXPECT_TRUE(told()) << "the server said what time it is when it queued us";
  ASSERT_NE(redis("CLIENT", "KILL", "TYPE", "pubsub"), "0");
  ASSERT_TRUE(wait_until([&] { return redis("PUBSUB", "NUMSUB", channel).ends_with(" 1]"); }))
      << "it listens again";
  static_cast<void>(a.verbs->inspect("stock", call_within(patience)));
  EXPECT_FALSE(told()) << "asking again is the way to learn when it began";
  place = queue(a, ask);
  EXPECT_TRUE(told()) << "now it is known";
}

}  // namespace
}  // namespace holdfast::testing
