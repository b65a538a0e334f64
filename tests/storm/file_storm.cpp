// What is broken: processes that use one file store are killed with SIGKILL at random instants, thousands of
// times. What must still hold: nobody is inside together with somebody who excludes it, tokens of a name rise
// strictly, and everybody who lives gets its turn.
//
// HOLDFAST_STORM_SECONDS (10 for all rounds together) and HOLDFAST_STORM_SEED repeat or prolong a run.

#include <holdfast/clock.hpp>
#include <holdfast/engine.hpp>

#include "engines/file/engine.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t worker_count = 5;
constexpr std::size_t name_count = 3;
constexpr std::size_t life_count = 1 << 18;
constexpr auto patience = 30s;

// What the workers of one round know of each other; shared memory.
struct arena {
  // Who is inside, and with which weight: life in the upper half. Written after entering and cleared before
  // leaving, so what is in here really overlaps.
  std::atomic<std::uint64_t> inside[name_count][worker_count];
  std::atomic<std::uint64_t> last_token[name_count];
  std::atomic<std::uint64_t> turns[worker_count];
  std::atomic<std::uint8_t> doomed[life_count];  // set before the kill: it may be inside and dead
  std::atomic<bool> stop;
  std::atomic<int> complaints;
  char complaint[512];

  void complain(const std::string& text) {
    if (complaints.fetch_add(1) == 0) std::strncpy(complaint, text.c_str(), sizeof complaint - 1);
  }
};

struct deaf final : engine_listener {
  void on_lost(std::span<const owner_id>, std::string_view) noexcept override {}
};

struct promised final : completion<progress> {
  void complete(result<progress> got) noexcept override { outcome.set_value(std::move(got)); }
  std::promise<result<progress>> outcome;
};

enum class workload { exclusive, mixed };

class worker {
 public:
  worker(arena& shared, const std::string& url, workload kind, std::size_t slot, std::uint32_t life)
      : shared_(shared),
        kind_(kind),
        slot_(slot),
        life_(life),
        random_(life),
        url_(*store_url::parse(url)) {
    std::random_device device;
    for (auto& half : client_) half = std::uint64_t{device()} << 32 | device();
  }

  void run() {
    auto opened =
        engines::file::make_engine({url_, client_, system_clock(), listener_, "storm", getpid()});
    if (!opened) return shared_.complain("open: " + opened.error().message());
    engine_ = std::move(*opened);
    while (!shared_.stop.load()) {
      turn();
      shared_.turns[slot_].fetch_add(1);
    }
  }

 private:
  request ask(std::size_t name) {
    request out;
    out.name = names_[name];
    out.owner = {client_, ++sequence_};
    out.ttl = 60s;  // nobody pauses here: whoever loses its lock was killed
    out.memo = &memos_[name];
    return out;
  }

  // Waits on this thread, or through the keeper.
  result<progress> await(const ticket& place, const call& limits) {
    if (kind_ == workload::exclusive || random_() % 4 != 0) return engine_->await(place, limits);
    promised answer;
    engine_->start_await(place, limits, answer);
    return answer.outcome.get_future().get();
  }

  // Enters, or complains. Now and then it gives up and comes back.
  bool enter(const request& what, grant& got) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < end) {
      auto answer = engine_->enter(what, {});
      if (!answer) return shared_.complain("enter: " + answer.error().message()), false;
      if (answer->what == entered::kind::granted) return got = answer->granted, true;
      if (answer->what == entered::kind::busy) return false;
      call limits;
      const bool fickle = random_() % 16 == 0;
      limits.deadline = fickle ? std::chrono::steady_clock::now() + 1ms : end;
      auto moved = await(answer->waiting, limits);
      if (!moved) return shared_.complain("await: " + moved.error().message()), false;
      if (moved->is_granted) return got = moved->granted, true;
      if (fickle) {
        if (auto left = engine_->leave(answer->waiting, {}); !left) {
          shared_.complain("leave: " + left.error().message());
        }
      }
    }
    shared_.complain(
        fmt::format("worker {} waited {} s for {}", slot_, patience.count(), what.name));
    return false;
  }

  void appear(std::size_t name, std::uint64_t weight, std::uint64_t capacity) {
    auto& places = shared_.inside[name];
    places[slot_].store(std::uint64_t{life_} << 32 | weight);
    std::uint64_t sum = weight;
    for (std::size_t i = 0; i < worker_count; ++i) {
      const std::uint64_t other = places[i].load();
      if (i != slot_ && other != 0 && shared_.doomed[other >> 32].load() == 0)
        sum += other & 0xFFFF'FFFF;
    }
    if (sum > capacity && shared_.doomed[life_].load() == 0) {
      shared_.complain(fmt::format("{} of {} are inside {}", sum, capacity, names_[name]));
    }
  }
  void vanish(std::size_t name) { shared_.inside[name][slot_].store(0); }

  // REQUIRES: we are the only one inside, or tokens of two may be seen in any order.
  void check_token(std::size_t name, fencing_token token) {
    const std::uint64_t last = shared_.last_token[name].exchange(token.value);
    if (token.value <= last && shared_.doomed[life_].load() == 0) {
      shared_.complain(fmt::format("token {} of {} after {}", token.value, names_[name], last));
    }
  }

  void release(std::size_t name, const grant& held) {
    vanish(name);
    if (auto done = engine_->release(held, {}); !done)
      shared_.complain("release: " + done.error().message());
  }

  void turn() {
    const std::size_t name = random_() % name_count;
    if (kind_ == workload::mixed && random_() % 64 == 0) chore(name);
    if (kind_ == workload::exclusive || name == 0) return exclusive_turn(name);
    return name == 1 ? shared_turn(name) : permit_turn(name);
  }

  // Whatever else goes on in the store must not be in the way.
  void chore(std::size_t name) {
    const call soon{std::chrono::steady_clock::now() + 1ms, {}};
    const auto seen = engine_->inspect(names_[name], {});
    if (!seen) return shared_.complain("inspect: " + seen.error().message());
    (void)engine_->watch(watch_kind::lock, names_[name], seen->version, soon);
    (void)engine_->count({"storm/count", counter_op::create, 1, 0, 1h}, {});
    (void)engine_->count({"storm/count", counter_op::add, 1, 0, {}}, {});
    const auto all = engine_->list("storm/", 10, {});
    if (!all || all->size() > name_count) shared_.complain("list: wrong");
  }

  void exclusive_turn(std::size_t name) {
    request what = ask(name);
    what.wait = random_() % 8 != 0;
    grant got;
    if (!enter(what, got)) return;
    appear(name, rw_capacity, rw_capacity);
    check_token(name, got.token);
    if (random_() % 4 == 0) {
      renewal one;
      one.held = &got;
      const auto asked = engine_->renew({&one, 1}, {});
      if (!asked || one.answer != renewal::verdict::held)
        shared_.complain("a living holder was not renewed");
      got.valid_from = one.valid_from;
    }
    release(name, got);
  }

  void shared_turn(std::size_t name) {
    request what = ask(name);
    const auto choice = random_() % 4;
    grant got;
    if (choice == 0) {  // write, then read on
      if (!enter(what, got)) return;
      appear(name, rw_capacity, rw_capacity);
      check_token(name, got.token);
      appear(name, 1, rw_capacity);
      auto smaller = engine_->downgrade(got, lock_mode::shared, {});
      if (!smaller) return shared_.complain("downgrade: " + smaller.error().message());
      return release(name, *smaller);
    }
    what.mode = choice == 1 ? lock_mode::upgradeable : lock_mode::shared;
    what.weight = choice == 1 ? upgradeable_weight : 1;
    if (!enter(what, got)) return;
    appear(name, what.weight, rw_capacity);
    if (choice == 1 && random_() % 2 == 0) {
      request more = ask(name);
      more.replaces = &got;
      grant all;
      if (!enter(more, all)) return;
      appear(name, rw_capacity, rw_capacity);
      check_token(name, all.token);
      got = all;
    }
    release(name, got);
  }

  void permit_turn(std::size_t name) {
    request what = ask(name);
    what.mode = lock_mode::permits;
    what.capacity = 3;
    what.weight = 1 + random_() % 2;
    what.priority = static_cast<int>(random_() % 3);
    grant got;
    if (!enter(what, got)) return;
    appear(name, what.weight, what.capacity);
    release(name, got);
  }

  arena& shared_;
  workload kind_;
  std::size_t slot_;
  std::uint32_t life_;
  std::mt19937_64 random_;
  store_url url_;
  std::array<std::uint64_t, 2> client_{};
  deaf listener_;
  std::unique_ptr<engine> engine_;
  std::uint64_t sequence_ = 0;
  const std::string names_[name_count]{"storm/a", "storm/b", "storm/c"};
  std::atomic<std::uint64_t> memos_[name_count]{};
};

long from_environment(const char* name, long fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atol(text);
}

class storm : public testing::TestWithParam<std::tuple<workload, const char*>> {
 protected:
  void SetUp() override {
    void* memory =
        mmap(nullptr, sizeof(arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    arena_ = new (memory) arena;
    char folder[] = "/tmp/holdfast-storm-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    munmap(arena_, sizeof(arena));
    std::filesystem::remove_all(folder_);
  }

  void spawn(std::size_t slot) {
    const auto life = ++lives_;
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      worker{*arena_, "file:" + folder_ + "/store", std::get<0>(GetParam()), slot, life}.run();
      _exit(0);
    }
    pids_[slot] = pid;
    life_of_[slot] = life;
  }

  void shoot(std::size_t slot) {
    arena_->doomed[life_of_[slot]].store(1);
    kill(pids_[slot], SIGKILL);
    int status = 0;
    waitpid(pids_[slot], &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "worker ended by itself: " << status;
    for (auto& name : arena_->inside) {
      std::uint64_t was = name[slot].load();
      if (was >> 32 == life_of_[slot]) name[slot].compare_exchange_strong(was, 0);
    }
    pids_[slot] = 0;
  }

  void expect_no_complaints() {
    EXPECT_EQ(arena_->complaints.load(), 0) << "the first: " << arena_->complaint;
  }

  arena* arena_ = nullptr;
  std::string folder_;
  std::uint32_t lives_ = 0;
  pid_t pids_[worker_count]{};
  std::uint32_t life_of_[worker_count]{};
};

TEST_P(storm, nobody_overlaps_and_everybody_advances_while_workers_are_killed) {
  const auto seed = from_environment("HOLDFAST_STORM_SEED", std::random_device{}() & 0x7FFFFFFF);
  const auto length = 1000ms * from_environment("HOLDFAST_STORM_SECONDS", 10) / 3;
  std::mt19937_64 random{static_cast<std::uint64_t>(seed)};
  setenv("HOLDFAST_FILE_NO_WAITV", std::get<1>(GetParam()), 1);
  for (std::size_t i = 0; i < worker_count; ++i) spawn(i);

  long kills = 0;
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end && arena_->complaints.load() == 0 &&
         lives_ < life_count - 1) {
    // The instant of the kill is the fault: from "still opening the store" to "thousands of turns".
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 4000});
    const std::size_t victim = random() % worker_count;
    shoot(victim);
    spawn(victim);
    ++kills;
  }
  expect_no_complaints();

  // The storm is over. Everybody alive must go on having turns, whatever the dead left behind.
  std::uint64_t before[worker_count];
  for (std::size_t i = 0; i < worker_count; ++i) before[i] = arena_->turns[i].load();
  const auto last = std::chrono::steady_clock::now() + patience;
  for (std::size_t i = 0; i < worker_count; ++i) {
    while (arena_->turns[i].load() < before[i] + 200 && std::chrono::steady_clock::now() < last) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_GE(arena_->turns[i].load(), before[i] + 200) << "worker " << i << " stands still";
  }
  arena_->stop = true;
  for (auto& pid : pids_) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    pid = 0;
  }
  unsetenv("HOLDFAST_FILE_NO_WAITV");
  expect_no_complaints();
  std::uint64_t turns = 0;
  for (const auto& each : arena_->turns) turns += each.load();
  std::printf("seed %ld: %ld kills, %lu turns\n", static_cast<long>(seed), kills,
              static_cast<unsigned long>(turns));
}

INSTANTIATE_TEST_SUITE_P(file, storm,
                         testing::Values(std::tuple{workload::exclusive, "0"},
                                         std::tuple{workload::mixed, "0"},
                                         std::tuple{workload::mixed, "1"}),
                         [](const auto& one) {
                           const bool mixed = std::get<0>(one.param) == workload::mixed;
                           const bool without = *std::get<1>(one.param) == '1';
                           return std::string{mixed ? "mixed" : "exclusive"} +
                                  (without ? "_without_waitv" : "");
                         });

}  // namespace
}  // namespace holdfast
