// Death: what the kernel does to a session's word, and what others see of it.
#include "engines/file/session.hpp"
#include "engines/file/engine.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using engines::file::make_engine;
using testing::fails_with;
using testing::is_ok;
using testing::wait_until;
using kind = entered::kind;

// A process with a client of its own that does something, says so, and waits to be killed. It is started
// before this process has threads, so that it may have some.
class victim {
 public:
  template <class Act>
  victim(const std::string& url, Act act) {
    int ready[2];
    int go[2];
    if (pipe(ready) != 0 || pipe(go) != 0) throw std::runtime_error("pipe failed");
    pid_ = fork();
    char byte = 0;
    if (pid_ == 0) {
      if (read(go[0], &byte, 1) != 1) _exit(1);
      testing::raw_client own{make_engine, url, system_clock(), 99};
      act(own);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    ready_ = ready[0];
    go_ = go[1];
    ::close(ready[1]);
    ::close(go[0]);
  }
  ~victim() {
    end();
    ::close(ready_);
    ::close(go_);
  }
  bool start() {
    char byte = 0;
    return write(go_, "x", 1) == 1 && read(ready_, &byte, 1) == 1;
  }
  void pause_it() { kill(pid_, SIGSTOP); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int ready_ = -1, go_ = -1;
};

struct file_session : ::testing::Test {
  testing::temp_dir folder;
  std::string path = folder.file("store");
  std::string url = "file:" + path;
};

TEST_F(file_session, the_kernel_marks_the_word_of_a_killed_client) {
  using namespace engines::file;
  victim other{url, [](testing::raw_client&) {}};
  ASSERT_TRUE(other.start());
  const auto store = mapping::open({path}).value();
  session& first = store->session_at(0);
  EXPECT_TRUE(is_alive(first, first.generation.load()));
  other.end();
  EXPECT_TRUE(wait_until([&] { return !is_alive(first, first.generation.load()); }));
  EXPECT_NE(life_word(first).load() & FUTEX_OWNER_DIED, 0U);
}

TEST_F(file_session, a_place_is_used_again_under_another_generation) {
  using namespace engines::file;
  testing::recording_listener listener;
  const auto where = store_url::parse(url).value();
  const engine_config config{where, {1, 2}, system_clock(), listener, "here", 1};
  const auto store = mapping::open({path}).value();
  const auto first = begin_session(*store, config).value();
  end_session(*store, first);
  EXPECT_FALSE(is_alive(store->session_at(first.session), first.generation));
  store->head().next_session = first.session;
  const auto second = begin_session(*store, config).value();
  EXPECT_EQ(second.session, first.session);
  EXPECT_NE(second.generation, first.generation);
  EXPECT_FALSE(is_alive(store->session_at(first.session), first.generation));
  EXPECT_TRUE(is_alive(store->session_at(second.session), second.generation));
  end_session(*store, second);
}

TEST_F(file_session, a_waiter_has_the_lock_soon_after_the_holder_is_killed) {
  for (const bool fast : {true, false}) {
    victim holder{url, [fast](testing::raw_client& own) {
                    auto ask = own.ask("a");
                    if (!fast) {
                      ask.mode = lock_mode::shared;
                      ask.weight = 1;
                    }
                    ask.ttl = 1h;
                    if (own.verbs->enter(ask, {}).value().what != kind::granted) _exit(2);
                  }};
    ASSERT_TRUE(holder.start());
    testing::raw_client waiter{make_engine, url, system_clock(), 2};
    const auto place = waiter.verbs->enter(waiter.ask("a"), {}).value();
    ASSERT_EQ(place.what, kind::waiting);
    std::thread killer{[&] { holder.end(); }};
    const auto got =
        waiter.verbs->await(place.waiting, {std::chrono::steady_clock::now() + 10s, {}});
    killer.join();
    ASSERT_TRUE(is_ok(got));
    EXPECT_TRUE(got->is_granted);
  }
}

TEST_F(file_session, a_dead_waiter_is_skipped) {
  victim second{url, [](testing::raw_client& own) {
                  if (own.verbs->enter(own.ask("a"), {}).value().what != kind::waiting) _exit(2);
                }};
  testing::raw_client a{make_engine, url, system_clock(), 1};
  testing::raw_client b{make_engine, url, system_clock(), 2};
  const auto held = a.verbs->enter(a.ask("a"), {}).value();
  ASSERT_TRUE(second.start());
  const auto third = b.verbs->enter(b.ask("a"), {}).value();
  ASSERT_EQ(third.what, kind::waiting);
  EXPECT_EQ(a.verbs->inspect("a", {}).value().waiters.size(), 2U);
  second.end();
  EXPECT_EQ(a.verbs->inspect("a", {}).value().waiters.size(), 1U);
  ASSERT_TRUE(is_ok(a.verbs->release(held.granted, {})));
  EXPECT_TRUE(b.verbs->await(third.waiting, {}).value().is_granted);
}

TEST_F(file_session, a_stopped_holder_loses_it_when_its_ttl_is_over) {
  victim holder{url, [](testing::raw_client& own) {
                  auto ask = own.ask("a");
                  ask.ttl = 300ms;
                  if (own.verbs->enter(ask, {}).value().what != kind::granted) _exit(2);
                }};
  ASSERT_TRUE(holder.start());
  holder.pause_it();
  testing::raw_client waiter{make_engine, url, system_clock(), 2};
  const auto ask = waiter.ask("a");
  auto place = waiter.verbs->enter(ask, {}).value();
  if (place.what == kind::waiting) {
    EXPECT_TRUE(waiter.verbs->await(place.waiting, {std::chrono::steady_clock::now() + 10s, {}})
                    .value()
                    .is_granted);
  }
}

TEST_F(file_session, closing_a_client_gives_back_what_it_held) {
  testing::raw_client b{make_engine, url, system_clock(), 2};
  ticket place;
  {
    testing::raw_client a{make_engine, url, system_clock(), 1};
    ASSERT_EQ(a.verbs->enter(a.ask("a"), {}).value().what, kind::granted);
    const auto asked = b.verbs->enter(b.ask("a"), {}).value();
    ASSERT_EQ(asked.what, kind::waiting);
    place = asked.waiting;
  }
  EXPECT_TRUE(
      b.verbs->await(place, {std::chrono::steady_clock::now() + 10s, {}}).value().is_granted);
}

TEST_F(file_session, a_forked_child_is_refused_and_does_no_harm) {
  auto own = std::make_unique<testing::raw_client>(make_engine, url, system_clock(), 1);
  const auto held = own->verbs->enter(own->ask("a"), {}).value();
  const pid_t child = fork();
  if (child == 0) {
    const auto asked = own->verbs->enter(own->ask("b"), {});
    const auto released = own->verbs->release(held.granted, {});
    own.reset();
    const bool refused = !asked && asked.error().code() == errc::misconfigured && !released &&
                         released.error().code() == errc::misconfigured;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(is_ok(own->verbs->release(held.granted, {})));
}

}  // namespace
}  // namespace holdfast
