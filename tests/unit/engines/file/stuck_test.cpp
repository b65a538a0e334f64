// What is broken: a process that is stopped, or dies, while it has the mutex of one shard. What must still hold: it
// costs the clients whose locks lie in that shard, and no others; and a client that cannot rebuild a shard does not
// hide that it needs it.
#include "engines/file/engine.hpp"
#include "engines/file/mapping.hpp"
#include "engines/file/shard.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"

#include <holdfast/client.hpp>
#include <holdfast/shared_mutex.hpp>

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using engines::file::make_engine;
using testing::fails_with;
using testing::is_ok;
using testing::wait_until;
using kind = entered::kind;
namespace layout = engines::file;

struct file_stuck : ::testing::Test {
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer knows no mutex with a deadline";
#endif
  }
  ~file_stuck() override {
    if (child_ > 0) end_child();
  }

  std::uint64_t hash_of(std::string_view name) {
    const auto store = layout::mapping::open({path}).value();
    return layout::hash_name(store->head().fixed.hash_seed, name);
  }
  // A name that lies in another shard than `other`.
  std::string apart_from(const std::string& other, int number) {
    for (int i = 0;; ++i) {
      auto name = "apart/" + std::to_string(number) + "/" + std::to_string(i);
      if (layout::shard_of(hash_of(name)) != layout::shard_of(hash_of(other))) return name;
    }
  }

  // Runs `act` in a process that has the mutex of the name's shard; it keeps it until it dies.
  void inside(std::string_view name,
              const std::function<void(layout::mapping&, layout::shard&, std::uint64_t)>& act) {
    child_ = fork();
    if (child_ != 0) {
      ASSERT_EQ(waitpid(child_, nullptr, WUNTRACED), child_);
      return;
    }
    const auto store = layout::mapping::open({path}).value();
    const auto hash = layout::hash_name(store->head().fixed.hash_seed, name);
    auto& at = store->shard_at(layout::shard_of(hash));
    pthread_mutex_lock(&at.mutex);
    act(*store, at, hash);
    _exit(0);
  }
  void stop_inside(std::string_view name) {
    inside(name, [](auto&, auto&, auto) { raise(SIGSTOP); });
  }
  void end_child() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

  static request reader(request ask) {
    ask.mode = lock_mode::shared;
    ask.weight = 1;
    return ask;
  }

  testing::temp_dir folder;
  std::string path = folder.file("store");
  std::string url = "file:" + path;

 private:
  pid_t child_ = -1;
};

TEST_F(file_stuck, a_crash_that_the_finder_cannot_mend_is_mended_before_anybody_enters) {
  const auto least = std::to_string(layout::chunks_at + 8 * layout::chunk_bytes);
  const auto most = std::to_string(layout::chunks_at + 1000 * layout::chunk_bytes);
  testing::raw_client small{make_engine, url + "?max_size=" + least, system_clock(), 1};
  testing::raw_client a{make_engine, url + "?max_size=" + most, system_clock(), 2};
  testing::raw_client b{make_engine, url + "?max_size=" + most, system_clock(), 3};
  std::vector<std::string> names;  // more than the small one can see
  for (int i = 0; i < 64; ++i) {
    names.push_back("name/" + std::to_string(i));
    ASSERT_TRUE(is_ok(a.verbs->enter(reader(a.ask(names.back())), {})));
  }
  ASSERT_EQ(a.verbs->enter(reader(a.ask("x")), {}).value().what, kind::granted);
  // Killed while it serves a waiter: the grant is written and may be believed, the lists do not know it yet.
  inside("x", [](layout::mapping& store, layout::shard& at, std::uint64_t hash) {
    auto where = at.buckets[hash / layout::shard_count % layout::bucket_count];
    while (store.record_at(where).hash != hash) where = store.record_at(where).next;
    auto& in = store.record_at(where);
    in.holders = 0;
    in.holder_count = 0;
    in.used = 0;
  });
  ASSERT_TRUE(fails_with(small.verbs->enter(small.ask("x"), {}), errc::unavailable));
  auto ask = b.ask("x");
  ask.wait = false;
  EXPECT_EQ(b.verbs->enter(ask, {}).value().what, kind::busy);
}

TEST_F(file_stuck, one_stuck_shard_costs_the_other_grants_of_a_batch_nothing) {
  testing::raw_client own{make_engine, url, system_clock(), 1};
  const std::vector<std::string> names{"stuck", apart_from("stuck", 1), apart_from("stuck", 2)};
  std::vector<grant> held;
  for (const auto& name : names)
    held.push_back(own.verbs->enter(reader(own.ask(name)), {}).value().granted);
  stop_inside("stuck");
  std::vector<renewal> batch(3);
  for (std::size_t i = 0; i < 3; ++i) batch[i].held = &held[i];
  const auto check = [&](nanoseconds bound, const std::function<void()>& ask) {
    const auto before = std::chrono::steady_clock::now();
    ask();
    EXPECT_LT(std::chrono::steady_clock::now() - before, bound);
    EXPECT_EQ(batch[0].answer, renewal::verdict::unknown);
    EXPECT_EQ(batch[1].answer, renewal::verdict::held);
    EXPECT_EQ(batch[2].answer, renewal::verdict::held);
  };
  check(250ms, [&] {
    testing::promised<session_proof> done;
    own.verbs->start_renew(batch, {}, done);
    EXPECT_TRUE(is_ok(done.get()));
  });
  check(1500ms, [&] { EXPECT_TRUE(is_ok(own.verbs->renew(batch, {}))); });
  end_child();
  ASSERT_TRUE(is_ok(own.verbs->renew(batch, {})));
  EXPECT_EQ(batch[0].answer, renewal::verdict::held);
}

TEST_F(file_stuck, many_questions_about_a_stuck_shard_wait_for_it_once) {
  testing::raw_client own{make_engine, url, system_clock(), 1};
  const auto held = own.verbs->enter(reader(own.ask("stuck")), {}).value().granted;
  stop_inside("stuck");
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    testing::promised<void> done;
    own.verbs->start_release(held, {}, done);
    EXPECT_TRUE(fails_with(done.get(), errc::unavailable));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, 500ms);  // 100 moments would be a second
}

TEST_F(file_stuck, a_call_comes_back_soon_after_its_deadline) {
  testing::raw_client own{make_engine, url, system_clock(), 1};
  stop_inside("stuck");
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with(own.verbs->enter(reader(own.ask("stuck")), {before + 50ms, {}}),
                         errc::unavailable));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 300ms);
}

TEST_F(file_stuck, the_lease_in_a_stuck_shard_is_lost_in_time_and_the_others_live_on) {
  const auto store = client::open(url, {.ttl = 1s});
  const auto good_name = apart_from("stuck", 1), other_name = apart_from("stuck", 2);
  shared_mutex stuck{store, "stuck"}, good{store, good_name}, other{store, other_name};
  const auto one = good.acquire_shared({}).value();
  const auto gone = stuck.acquire_shared({}).value();
  const auto two = other.acquire_shared({}).value();
  stop_inside("stuck");
  ASSERT_TRUE(wait_until([&] { return !gone.valid(); }, 3s));
  const auto ended = std::chrono::steady_clock::now();
  EXPECT_TRUE(wait_until([&] { return gone.lost().stop_requested(); }, 5s));
  EXPECT_LT(std::chrono::steady_clock::now() - ended, 300ms);
  // Longer than the others could live without a renewal.
  while (std::chrono::steady_clock::now() < ended + 1500ms) {
    ASSERT_TRUE(one.valid());
    ASSERT_TRUE(two.valid());
    std::this_thread::sleep_for(5ms);
  }
}

}  // namespace
}  // namespace holdfast
