// The start_ verbs of an engine that writes only the plain ones.
#include "engines/common/blocking_engine.hpp"

#include "engines/common/blocking_completion.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace holdfast::engines {
namespace {

// Says what it was asked, and on which thread. The verbs wait until the gate is open.
class slow_engine final : public blocking_engine {
 public:
  slow_engine() : blocking_engine(1) {}
  ~slow_engine() override {
    open();
    finish_work();
  }
  void open() {
    if (!is_open_) gate_.set_value();
    is_open_ = true;
  }
  const std::vector<std::string>& finish() {
    open();
    finish_work();
    return asked_;
  }

  const capabilities& caps() const noexcept override { return caps_; }
  result<entered> enter(const request& ask, const call&) override {
    note("enter", ask.name);
    return entered{};
  }
  result<progress> await(const ticket&, const call&) override { return progress{}; }
  result<void> leave(const ticket& place, const call&) override {
    note("leave", place.name);
    return {};
  }
  result<session_proof> renew(std::span<renewal>, const call&) override { return session_proof{}; }
  result<void> release(const grant&, const call&) override { return {}; }
  result<grant> downgrade(const grant& held, lock_mode, const call&) override { return held; }
  result<entered> settle(const request& ask, const call&) override {
    note("settle", ask.name);
    return error{errc::unavailable, "not now"};
  }
  result<lock_info> inspect(std::string_view name, const call&) override {
    note("inspect", name);
    lock_info out;
    out.name = name;
    return out;
  }
  result<std::vector<lock_info>> list(std::string_view, std::size_t, const call&) override {
    return std::vector<lock_info>{};
  }
  result<std::size_t> revoke(std::string_view, const call&) override { return std::size_t{0}; }
  result<counter> count(const counter_request& ask, const call&) override {
    note("count", ask.name);
    counter out;
    out.value = 7;
    return out;
  }
  bool contended(const grant&) const noexcept override { return true; }
  void start_await(const ticket&, const call&, completion<progress>& done) noexcept override {
    done.complete(progress{});
  }
  void start_release(const grant&, const call&, completion<void>& done) noexcept override {
    done.complete({});
  }
  void start_renew(std::span<renewal>, const call&,
                   completion<session_proof>& done) noexcept override {
    done.complete(session_proof{});
  }
  void start_watch(watch_kind, std::string_view name, std::uint64_t, const call&,
                   completion<void>& done) noexcept override {
    post([this, name, &done] {
      note("watch", name);
      done.complete({});
    });
  }

 private:
  void note(std::string_view verb, std::string_view name) {
    opened_.wait();
    EXPECT_NE(std::this_thread::get_id(), home_);
    asked_.push_back(std::string{verb} + " " + std::string{name});
  }

  const std::thread::id home_ = std::this_thread::get_id();
  capabilities caps_;
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  bool is_open_ = false;
  std::vector<std::string> asked_;
};

TEST(common_blocking_engine, start_verbs_return_at_once_and_are_served_in_the_order_of_the_calls) {
  slow_engine verbs;
  const call limits;
  request ask;
  ask.name = "a";
  ticket place;
  place.name = "b";
  counter_request number;
  number.name = "c";
  blocking_completion<entered> entering, settling;
  blocking_completion<void> leaving;
  blocking_completion<counter> counting;
  blocking_completion<lock_info> looking;
  verbs.start_enter(ask, limits, entering);
  verbs.start_leave(place, limits, leaving);
  verbs.start_count(number, limits, counting);
  verbs.start_settle(ask, limits, settling);
  verbs.start_inspect("d", limits, looking);
  EXPECT_FALSE(entering.is_there_by(std::chrono::steady_clock::now()));
  verbs.open();
  EXPECT_EQ(entering.get()->what, entered::kind::busy);
  EXPECT_TRUE(leaving.get());
  EXPECT_EQ(counting.get()->value, 7);
  EXPECT_EQ(settling.get().error().code(), errc::unavailable) << "failures arrive as they are";
  EXPECT_EQ(looking.get()->name, "d");
  EXPECT_EQ(verbs.finish(),
            (std::vector<std::string>{"enter a", "leave b", "count c", "settle a", "inspect d"}));
}

TEST(common_blocking_engine, watch_is_start_watch_awaited) {
  slow_engine verbs;
  verbs.open();
  EXPECT_TRUE(verbs.watch(watch_kind::lock, "a", 0, {}));
  EXPECT_EQ(verbs.finish(), std::vector<std::string>{"watch a"});
}

TEST(common_blocking_engine, what_is_on_its_way_is_completed_when_the_engine_goes) {
  const call limits;
  request ask;
  ask.name = "a";
  blocking_completion<entered> first, second;
  {
    slow_engine verbs;
    verbs.start_enter(ask, limits, first);
    verbs.start_enter(ask, limits, second);
  }
  const auto now = std::chrono::steady_clock::now();
  EXPECT_TRUE(first.is_there_by(now));
  EXPECT_TRUE(second.is_there_by(now));
}

}  // namespace
}  // namespace holdfast::engines
