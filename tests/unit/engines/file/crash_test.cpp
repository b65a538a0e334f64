// What is broken: a process is killed at one instruction of its way through the store, chosen by single-stepping
// it there. What must still hold: the others get their locks, in order, with rising tokens, and nothing of the
// dead one is left. Kills by the clock hardly ever hit the few instructions that matter; this hits all of them.
#include "engines/file/engine.hpp"
#include "engines/file/mapping.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <utility>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using engines::file::make_engine;
using testing::is_ok;
using kind = entered::kind;

// HOLDFAST_CRASH_SECONDS per scenario.
std::chrono::seconds time_budget() {
  const char* text = std::getenv("HOLDFAST_CRASH_SECONDS");
  return std::chrono::seconds{text == nullptr ? 3 : std::atoi(text)};
}

constexpr long instructions_per_trial = 400'000;

request with(request ask, lock_mode mode, std::uint64_t weight,
             std::uint64_t capacity = rw_capacity) {
  ask.mode = mode;
  ask.weight = weight;
  ask.capacity = capacity;
  return ask;
}

// The verbs that go through a shard; what the traced process does between its two stops.
using deed = std::function<void(testing::raw_client&)>;

void read_and_leave(testing::raw_client& own) {
  const auto place = own.verbs->enter(with(own.ask("x"), lock_mode::shared, 1), {}).value();
  if (place.what == kind::waiting) (void)own.verbs->leave(place.waiting, {});
}

void hold_permits(testing::raw_client& own) {
  const auto got = own.verbs->enter(with(own.ask("p"), lock_mode::permits, 2, 3), {}).value();
  if (got.what == kind::granted) (void)own.verbs->release(got.granted, {});
}

void upgrade_and_downgrade(testing::raw_client& own) {
  const auto base =
      own.verbs->enter(with(own.ask("u"), lock_mode::upgradeable, upgradeable_weight), {}).value();
  if (base.what != kind::granted) return;
  auto more = own.ask("u");
  more.replaces = &base.granted;
  const auto all = own.verbs->enter(more, {}).value();
  if (all.what != kind::granted) return;
  const auto less = own.verbs->downgrade(all.granted, lock_mode::shared, {});
  if (less) (void)own.verbs->release(*less, {});
}

void hand_over(testing::raw_client& own) {
  const auto first = own.verbs->enter(own.ask("h"), {}).value();   // the word
  const auto second = own.verbs->enter(own.ask("h"), {}).value();  // makes entries
  if (first.what == kind::granted) (void)own.verbs->release(first.granted, {});
  if (second.what == kind::waiting) (void)own.verbs->leave(second.waiting, {});
}

// Names that nobody used before, so that records and chunks must be made.
int trial_number = 0;
std::string fresh_name(int i) { return "n/" + std::to_string(trial_number * 4 + i); }

void make_names(testing::raw_client& own) {
  for (int i = 0; i < 4; ++i) {
    const auto name = fresh_name(i);
    const auto got = own.verbs->enter(with(own.ask(name), lock_mode::shared, 1), {});
    if (got && got->what == kind::granted) (void)own.verbs->release(got->granted, {});
  }
}

struct scenario {
  const char* name;
  deed what;
};

// A process of its own, which raises SIGSTOP where the steps begin; they end with `body`.
class traced {
 public:
  explicit traced(const std::function<void()>& body) : child_(fork()) {
    if (child_ == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
      body();
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    is_there_ = waitpid(child_, &status, 0) == child_ && WIFSTOPPED(status);
  }
  traced(const traced&) = delete;
  traced& operator=(const traced&) = delete;
  ~traced() { kill(); }

  // The number of instructions it took, or -1 when tracing is not allowed here.
  long step(long most) const {
    if (!is_there_) return -1;
    long steps = 0;
    for (int status = 0; steps < most; ++steps) {
      if (ptrace(PTRACE_SINGLESTEP, child_, nullptr, nullptr) != 0) break;
      if (waitpid(child_, &status, 0) != child_ || !WIFSTOPPED(status)) break;
      if (WSTOPSIG(status) == SIGSTOP) break;  // the second stop: it came through
    }
    return steps;
  }
  void kill() {
    if (std::exchange(is_over_, true)) return;
    ::kill(child_, SIGKILL);
    int status = 0;
    while (waitpid(child_, &status, 0) == child_ && !WIFSIGNALED(status) && !WIFEXITED(status)) {
    }
  }

 private:
  const pid_t child_;
  bool is_there_ = false, is_over_ = false;
};

class file_crash : public ::testing::TestWithParam<scenario> {
 protected:
  // Runs the deed and kills it after so many instructions. The number it took.
  long run(long stop_after) {
    return traced{[this] {
             testing::raw_client own{make_engine, url_, system_clock(), 7};
             raise(SIGSTOP);
             GetParam().what(own);
             raise(SIGSTOP);
           }}
        .step(stop_after);
  }

  std::uint64_t rebuilds() {
    const auto store = engines::file::mapping::open({folder_.file("store")}).value();
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < engines::file::shard_count; ++i)
      sum += store->shard_at(i).rebuilds;
    return sum;
  }

  testing::temp_dir folder_;
  std::string url_ = "file:" + folder_.file("store");
};

TEST_P(file_crash, whoever_lives_goes_on_whatever_instruction_was_the_last) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not allow threads in a forked child";
#endif
  // How long is the way?
  const long length = run(instructions_per_trial * 10);
  if (length < 0) GTEST_SKIP() << "ptrace is not allowed here";
  const auto end = std::chrono::steady_clock::now() + time_budget();
  const auto seed = std::random_device{}();
  std::mt19937_64 random{seed};
  fencing_token last[4];
  int trials = 0;
  for (; std::chrono::steady_clock::now() < end; ++trials) {
    const long stop =
        std::uniform_int_distribution<long>{0, std::min(length, instructions_per_trial)}(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", killed after " + std::to_string(stop));
    // Somebody reads and somebody waits to write, so that there are lists to break.
    testing::raw_client a{make_engine, url_, system_clock(), 1};
    testing::raw_client b{make_engine, url_, system_clock(), 2};
    const auto read = a.verbs->enter(with(a.ask("x"), lock_mode::shared, 1), {}).value();
    ASSERT_EQ(read.what, kind::granted);
    const auto write = b.verbs->enter(b.ask("x"), {}).value();
    ASSERT_EQ(write.what, kind::waiting);
    run(stop);
    ASSERT_TRUE(is_ok(a.verbs->release(read.granted, {})));
    const call soon{std::chrono::steady_clock::now() + 10s, {}};
    const auto got = b.verbs->await(write.waiting, soon);
    ASSERT_TRUE(is_ok(got));
    ASSERT_TRUE(got->is_granted);
    ASSERT_GT(got->granted.token, last[0]);
    last[0] = got->granted.token;
    ASSERT_TRUE(is_ok(b.verbs->release(got->granted, {})));
    const char* names[]{"x", "p", "u", "h"};
    for (std::size_t i = 1; i < 4; ++i) {
      auto ask = a.ask(names[i]);
      if (i == 1) ask = with(ask, lock_mode::permits, 3, 3);
      ask.wait = false;  // the dead one is dead: there is nothing to wait for
      const auto one = a.verbs->enter(ask, {}).value();
      ASSERT_EQ(one.what, kind::granted) << names[i];
      ASSERT_GT(one.granted.token, last[i]);
      last[i] = one.granted.token;
      ASSERT_TRUE(is_ok(a.verbs->release(one.granted, {})));
    }
    for (int i = 0; i < 4; ++i) {
      const auto name = fresh_name(i);
      ASSERT_EQ(a.verbs->enter(a.ask(name), {}).value().what, kind::granted) << name;
    }
    ASSERT_EQ(a.verbs->list("", 10, {}).value().size(), 4U);
    ++trial_number;
  }
  RecordProperty("trials", trials);
  const auto hits = rebuilds();
  std::printf("%ld instructions, %d kills, %lu of them inside a shard's mutex\n", length, trials,
              static_cast<unsigned long>(hits));
  if (trials > 100) {
    EXPECT_GT(hits, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(file, file_crash,
                         ::testing::Values(scenario{"read_and_leave", read_and_leave},
                                           scenario{"hold_permits", hold_permits},
                                           scenario{"upgrade_and_downgrade", upgrade_and_downgrade},
                                           scenario{"hand_over", hand_over},
                                           scenario{"make_names", make_names}),
                         [](const auto& one) { return std::string{one.param.name}; });

// The death of such a holder ends nothing, so those who wait need not hear of it; but it may die when it has given its
// lock to the first of them, and not told it yet.
TEST(file_crash_of_a_lasting_holder, the_client_it_gave_its_lock_to_hears_of_it) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not allow threads in a forked child";
#endif
  const testing::temp_dir folder;
  const auto url = "file:" + folder.file("store");
  struct wait {
    call limits = testing::call_within(30s);
    testing::promised<progress> told;
  };
  std::deque<wait> all;  // the engine uses them until it ends
  testing::raw_client waits{make_engine, url, system_clock(), 1};
  constexpr int trials = 200, enough = 20;
  constexpr std::int64_t lasting = 7;
  long length = instructions_per_trial;
  int granted = 0, kept = 0;
  // From some instruction on it has told everything.
  for (int trial = 0; trial <= trials && granted < enough; ++trial) {
    const auto name = "lasts/" + std::to_string(trial);
    traced holder{[&] {
      testing::raw_client own{make_engine, url, system_clock(), lasting};
      auto ask = own.ask(name);
      ask.ttl = 60s;
      ask.outlives_client = true;
      const auto held = own.verbs->enter(ask, {}).value();
      raise(SIGSTOP);
      (void)own.verbs->release(held.granted, {});
    }};
    const auto place = waits.verbs->enter(waits.ask(name), {}).value();
    ASSERT_EQ(place.what, kind::waiting);
    auto& wanted = all.emplace_back();
    auto& told = wanted.told;
    waits.verbs->start_await(place.waiting, wanted.limits, told);
    const long steps = holder.step(trial == 0 ? length : length * trial / trials);
    if (steps < 0) GTEST_SKIP() << "ptrace is not allowed here";
    if (trial == 0) length = steps;
    holder.kill();
    const auto is_kept = [&] {
      const auto seen = waits.verbs->inspect(name, {}).value();
      return seen.holders.size() == 1 && seen.holders.front().pid == lasting;
    };
    ASSERT_TRUE(testing::wait_until([&] { return told.is_done() || is_kept(); }, 10s))
        << "it has the lock since instruction " << steps << " of " << length << ", and sleeps on";
    if (told.is_done()) {
      granted += trial == 0 ? 0 : 1;
    } else {
      ++kept;
      ASSERT_TRUE(is_ok(waits.verbs->revoke(name, {})));
    }
    const auto got = told.get();
    ASSERT_TRUE(is_ok(got));
    if (got->is_granted) {
      ASSERT_TRUE(is_ok(waits.verbs->release(got->granted, {})));
    }
  }
  EXPECT_GT(granted, 0);
  EXPECT_GT(kept, 0);
}

}  // namespace
}  // namespace holdfast
