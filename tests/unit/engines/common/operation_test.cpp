// One verb as a coroutine, driven in two ways.
#include "engines/common/operation.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"

#include <gtest/gtest.h>

#include <coroutine>
#include <vector>

namespace holdfast::engines {
namespace {

using testing::fails_with;
using testing::is_ok;
using testing::promised;

// Something to ask: answered at once on a thread that blocks, else when the test says so.
class question {
 public:
  question(std::vector<std::coroutine_handle<>>& asked, const invocation& how)
      : asked_(asked), how_(how) {}
  bool await_ready() const noexcept { return how_.blocks; }
  void await_suspend(std::coroutine_handle<> caller) { asked_.push_back(caller); }
  int await_resume() const noexcept { return 1; }

 private:
  std::vector<std::coroutine_handle<>>& asked_;
  const invocation& how_;
};

struct fixture {
  std::vector<std::coroutine_handle<>> asked;

  operation<int> ask(invocation how) {
    auto what = question{asked, how};
    co_return co_await what;
  }
  operation<int> ask_twice(invocation how) {
    const auto first = co_await ask(how);
    const auto second = co_await ask(how);
    co_return *first + *second;
  }
  static operation<int> answer(invocation) { co_return 1; }
  static operation<int> add_up(int count, invocation how) {
    int sum = 0;
    for (int i = 0; i < count; ++i) {
      const auto got = co_await answer(how);
      sum += *got;
    }
    co_return sum;
  }
  static operation<int> fail(invocation) { co_return error{errc::busy, "The test says so."}; }
  static operation<void> pass_on(invocation how) {
    const auto got = co_await fail(how);
    if (!got) co_return got.error();
    co_return result<void>{};
  }
};

TEST(operation, runs_on_the_calling_thread_without_suspending) {
  fixture all;
  const call limits;
  EXPECT_EQ(all.ask_twice({limits, true}).run().value(), 2);
  EXPECT_TRUE(all.asked.empty());
}

TEST(operation, completes_when_the_last_answer_has_come) {
  fixture all;
  const call limits;
  promised<int> done;
  all.ask_twice({limits, false}).start(done);
  ASSERT_EQ(all.asked.size(), 1U);
  all.asked[0].resume();
  ASSERT_EQ(all.asked.size(), 2U);
  EXPECT_FALSE(done.is_done());
  all.asked[1].resume();
  EXPECT_EQ(done.get().value(), 2);
}

// Steps that are done at once must not pile up on the stack.
TEST(operation, loop_over_a_million_steps_needs_the_stack_of_one) {
  constexpr int count = 1'000'000;
  const call limits;
  EXPECT_EQ(fixture::add_up(count, {limits, true}).run().value(), count);
  promised<int> done;
  fixture::add_up(count, {limits, false}).start(done);
  EXPECT_EQ(done.get().value(), count);
}

TEST(operation, failure_of_a_step_is_an_answer) {
  const call limits;
  EXPECT_TRUE(fails_with(fixture::pass_on({limits, true}).run(), errc::busy));
  promised<void> done;
  fixture::pass_on({limits, false}).start(done);
  EXPECT_TRUE(fails_with(done.get(), errc::busy));
}

TEST(operation, that_is_never_driven_does_nothing) {
  fixture all;
  const call limits;
  { const auto never = all.ask_twice({limits, false}); }
  EXPECT_TRUE(all.asked.empty());
}

}  // namespace
}  // namespace holdfast::engines
