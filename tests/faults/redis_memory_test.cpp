// What breaks here: the server has no memory left, just when an owner of which a request is still on its way is ended.
// What must hold: such a request has no effect, also when it is delivered after there is memory again.
#include "faults/redis_contract.hpp"

namespace holdfast::testing {
namespace {

class redis_memory : public redis_layout_contract {
 protected:
  void be_full(bool full = true) { redis("CONFIG", "SET", "maxmemory", full ? "1" : "0"); }
};

TEST_P(redis_memory, settling_needs_none) {
  auto a = open(1), twin = open(1);
  const auto lost = ask(a);
  be_full();
  const auto settled = a.verbs->settle(lost, call_within(patience));
  ASSERT_TRUE(is_ok(settled));
  EXPECT_EQ(settled->what, entered::kind::busy);
  be_full(false);
  EXPECT_FALSE(twin.verbs->enter(lost, call_within(patience))) << "the late request";
  EXPECT_EQ(holders(twin, "stock"), 0U);
}

TEST_P(redis_memory, ending_an_owner_in_doubt_needs_none) {
  network net{server_.port()};
  auto a = raw(redis_url(net, GetParam().options + "&connections=1"), 1), twin = open(1);
  ASSERT_TRUE(is_ok(a.verbs->release(take(a, ask(a)), call_within(patience)))) << "connected";
  for (const bool leaves : {true, false}) {
    const auto lost = ask(a);
    net.delay(network::replies, 400ms);
    ASSERT_FALSE(a.verbs->enter(lost, call_within(100ms)));
    net.heal();
    const auto held = a.verbs->enter(lost, call_within(patience));
    ASSERT_TRUE(is_ok(held));
    ASSERT_EQ(held->what, entered::kind::granted);
    be_full();
    if (leaves) {
      ticket place{lost.name, lost.owner};
      place.handle = lost.mode == lock_mode::permits ? 1 : 0;
      EXPECT_TRUE(is_ok(a.verbs->leave(place, call_within(patience))));
    } else {
      EXPECT_TRUE(is_ok(a.verbs->release(held->granted, call_within(patience))));
    }
    be_full(false);
    EXPECT_FALSE(twin.verbs->enter(lost, call_within(patience))) << "the late copy";
    EXPECT_EQ(holders(twin, "stock"), 0U) << (leaves ? "left" : "released");
  }
}

INSTANTIATE_TEST_SUITE_P(all, redis_memory, ::testing::ValuesIn(all_layouts()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace holdfast::testing
