// Many threads on one client: what ThreadSanitizer can see of the paths without a mutex.
#include "engines/file/engine.hpp"

#include "support/engine_fixture.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using engines::file::make_engine;
using kind = entered::kind;

struct file_threads : ::testing::Test {
  testing::temp_dir folder;
  testing::raw_client client{make_engine, "file:" + folder.file("store"), system_clock(), 1};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> memo{0};
  std::atomic<int> failures{0};
  // Plain on purpose: only the lock keeps the threads apart.
  std::uint64_t counter = 0;
  std::uint64_t last_token = 0;

  request ask(lock_mode mode) {
    request out;
    out.name = "a";
    out.owner = {client.id, ++sequence};
    out.mode = mode;
    out.weight = mode == lock_mode::shared ? 1 : rw_capacity;
    out.ttl = 60s;
    out.memo = &memo;
    return out;
  }
  void with_lock(lock_mode mode, const auto& work) {
    const auto what = ask(mode);
    auto answer = client.verbs->enter(what, {}).value();
    if (answer.what == kind::waiting) {
      const call soon{std::chrono::steady_clock::now() + 30s, {}};
      auto moved = client.verbs->await(answer.waiting, soon).value();
      if (!moved.is_granted) return void(++failures);
      answer.granted = moved.granted;
    }
    work(answer.granted);
    if (!client.verbs->release(answer.granted, {})) ++failures;
  }
};

TEST_F(file_threads, exclude_each_other_whatever_path_they_take) {
  constexpr int threads = 4;
  constexpr int turns = 2000;
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([this, t] {
      for (int i = 0; i < turns; ++i) {
        if (t == 0 && i % 8 == 0) {
          with_lock(lock_mode::shared, [this](const grant&) {
            if (counter > threads * turns) ++failures;
          });
          (void)client.verbs->inspect("a", {});
        } else {
          with_lock(lock_mode::exclusive, [this](const grant& held) {
            ++counter;
            if (held.token.value <= last_token) ++failures;
            last_token = held.token.value;
            (void)client.verbs->contended(held);
          });
        }
      }
    });
  }
  for (auto& one : running) one.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(counter, static_cast<std::uint64_t>(threads * turns - turns / 8));
}

}  // namespace
}  // namespace holdfast
