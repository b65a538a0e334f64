// What is broken: processes that use one file store are killed with SIGKILL at random instants, thousands of
// times. What must still hold: no holder is inside together with another that excludes it and tokens of a name rise
// (support/judge.hpp decides, from what the workers wrote down), and every worker that lives gets its turn.
//
// HOLDFAST_STORM_SECONDS (10 for all rounds together) and HOLDFAST_STORM_SEED repeat or prolong a run.

#include <holdfast/clock.hpp>
#include <holdfast/engine.hpp>

#include "engines/file/engine.hpp"
#include "support/judge.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t worker_count = 5;
constexpr std::size_t name_count = 3;
constexpr std::size_t note_count = 1 << 20;
constexpr auto patience = 30s;

const std::string names[name_count]{"storm/a", "storm/b", "storm/c"};

// One turn, as its worker writes it down while it has it: a worker that is killed has believed up to `last`.
struct note {
  std::size_t name;
  std::uint64_t weight, capacity, token, slot;
  std::int64_t asked;
  std::atomic<std::int64_t> last;
  std::atomic<std::int64_t> begin;  // written last; 0: the worker was killed while it wrote
};

// What the workers of one round tell; shared memory.
struct arena {
  note notes[note_count];
  std::atomic<std::size_t> noted;
  std::atomic<std::uint64_t> turns[worker_count];
  std::atomic<bool> stop;
  std::atomic<int> complaints;
  char complaint[512];

  void complain(const std::string& text) {
    if (complaints.fetch_add(1) == 0) std::strncpy(complaint, text.c_str(), sizeof complaint - 1);
  }

  bool is_full() const { return noted.load() >= note_count; }

  std::vector<testing::turn> record() const {
    std::vector<testing::turn> out;
    for (const auto& each : std::span{notes, std::min(noted.load(), note_count)}) {
      if (each.begin.load() == 0) continue;
      testing::turn one;
      one.name = names[each.name];
      one.weight = each.weight;
      one.capacity = each.capacity;
      one.token.value = each.token;
      one.asked = steady_time{nanoseconds{each.asked}};
      one.begin = steady_time{nanoseconds{each.begin.load()}};
      one.last = steady_time{nanoseconds{each.last.load()}};
      one.client = each.slot;
      out.push_back(std::move(one));
    }
    return out;
  }
};

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

struct deaf final : engine_listener {
  void on_lost(std::span<const owner_id>, std::string_view) noexcept override {}
  void on_session_lost(std::uint64_t, std::string_view) noexcept override {}
};

struct promised final : completion<progress> {
  void complete(result<progress> got) noexcept override { outcome.set_value(std::move(got)); }
  std::promise<result<progress>> outcome;
};

enum class workload { exclusive, mixed };

class worker {
 public:
  worker(arena& shared, const std::string& url, workload kind, std::size_t slot, std::uint32_t seed)
      : shared_(shared), kind_(kind), slot_(slot), random_(seed), url_(*store_url::parse(url)) {
    std::random_device device;
    for (auto& half : client_) half = std::uint64_t{device()} << 32 | device();
  }

  void run() {
    auto opened =
        engines::file::make_engine({url_, client_, system_clock(), listener_, "storm", getpid()});
    if (!opened) return shared_.complain("open: " + opened.error().message());
    engine_ = std::move(*opened);
    while (!shared_.stop.load()) {
      take_a_turn();
      shared_.turns[slot_].fetch_add(1);
    }
  }

 private:
  request ask(std::size_t name) {
    request out;
    asked_ = now();
    out.name = names[name];
    out.owner = {client_, ++sequence_};
    out.ttl = 60s;  // nobody pauses here: whoever loses its lock was killed
    out.memo = &memos_[name];
    return out;
  }

  // Waits on this thread, or through the session thread.
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

  // Writes down what we are inside with from now on. What we were inside with until now, if anything, ends with it: one
  // worker is inside once.
  void appear(std::size_t name, std::uint64_t weight, std::uint64_t capacity, fencing_token token) {
    const auto last = vanish();
    const auto next = shared_.noted.fetch_add(1);
    if (next >= note_count) return;
    inside_ = &shared_.notes[next];
    inside_->name = name;
    inside_->weight = weight;
    inside_->capacity = capacity;
    inside_->token = token.value;
    inside_->slot = slot_;
    inside_->asked = asked_;
    const auto begin = std::max(now(), last + 1);
    inside_->last.store(begin);
    inside_->begin.store(begin);
  }
  std::int64_t vanish() {
    if (inside_ == nullptr) return 0;
    const auto last = now();
    std::exchange(inside_, nullptr)->last.store(last);
    return last;
  }

  void release(const grant& held) {
    vanish();
    if (auto done = engine_->release(held, {}); !done)
      shared_.complain("release: " + done.error().message());
  }

  void take_a_turn() {
    const std::size_t name = random_() % name_count;
    if (kind_ == workload::mixed && random_() % 64 == 0) chore(name);
    if (kind_ == workload::exclusive || name == 0) return exclusive_turn(name);
    return name == 1 ? shared_turn(name) : permit_turn(name);
  }

  // Whatever else goes on in the store must not be in the way.
  void chore(std::size_t name) {
    const call soon{std::chrono::steady_clock::now() + 1ms, {}};
    const auto seen = engine_->inspect(names[name], {});
    if (!seen) return shared_.complain("inspect: " + seen.error().message());
    (void)engine_->watch(watch_kind::lock, names[name], seen->version, soon);
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
    appear(name, rw_capacity, rw_capacity, got.token);
    if (random_() % 4 == 0) {
      renewal one;
      one.held = &got;
      const auto asked = engine_->renew({&one, 1}, {});
      if (!asked || one.answer != renewal::verdict::held)
        shared_.complain("a living holder was not renewed");
      got.valid_from = one.valid_from;
    }
    release(got);
  }

  void shared_turn(std::size_t name) {
    request what = ask(name);
    const auto choice = random_() % 4;
    grant got;
    if (choice == 0) {  // write, then read on
      if (!enter(what, got)) return;
      appear(name, rw_capacity, rw_capacity, got.token);
      appear(name, 1, rw_capacity,
             {});  // as a reader before the store knows, and with no grant of its own
      auto smaller = engine_->downgrade(got, lock_mode::shared, {});
      if (!smaller) return shared_.complain("downgrade: " + smaller.error().message());
      return release(*smaller);
    }
    what.mode = choice == 1 ? lock_mode::upgradeable : lock_mode::shared;
    what.weight = choice == 1 ? upgradeable_weight : 1;
    if (!enter(what, got)) return;
    appear(name, what.weight, rw_capacity, got.token);
    if (choice == 1 && random_() % 2 == 0) {
      request more = ask(name);
      more.replaces = &got;
      grant all;
      if (!enter(more, all)) return;
      appear(name, rw_capacity, rw_capacity, all.token);
      got = all;
    }
    release(got);
  }

  void permit_turn(std::size_t name) {
    request what = ask(name);
    what.mode = lock_mode::permits;
    what.capacity = 3;
    what.weight = 1 + random_() % 2;
    what.priority = static_cast<int>(random_() % 3);
    grant got;
    if (!enter(what, got)) return;
    appear(name, what.weight, what.capacity, got.token);
    release(got);
  }

  arena& shared_;
  workload kind_;
  std::size_t slot_;
  std::mt19937_64 random_;
  store_url url_;
  std::array<std::uint64_t, 2> client_{};
  deaf listener_;
  std::unique_ptr<engine> engine_;
  std::uint64_t sequence_ = 0;
  note* inside_ = nullptr;
  std::int64_t asked_ = 0;
  std::atomic<std::uint64_t> memos_[name_count]{};
};

long from_environment(const char* name, long fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atol(text);
}

class storm : public ::testing::TestWithParam<std::tuple<workload, const char*>> {
 protected:
  void SetUp() override {
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
    if (arena_ != nullptr) munmap(arena_, sizeof(arena));
    std::filesystem::remove_all(folder_);
  }

  // Fresh pages are zeros, and zeros are an empty arena.
  void make_arena() {
    if (arena_ != nullptr) munmap(arena_, sizeof(arena));
    void* memory =
        mmap(nullptr, sizeof(arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    arena_ = memory == MAP_FAILED ? nullptr : static_cast<arena*>(memory);
    ASSERT_NE(arena_, nullptr);
  }

  void spawn(std::size_t slot) {
    ++lives_;
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      worker{*arena_, "file:" + folder_ + "/store", std::get<0>(GetParam()), slot, lives_}.run();
      _exit(0);
    }
    pids_[slot] = pid;
  }

  void shoot(std::size_t slot) {
    kill(pids_[slot], SIGKILL);
    int status = 0;
    waitpid(pids_[slot], &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "worker ended by itself: " << status;
    pids_[slot] = 0;
  }

  long run_a_round(std::mt19937_64& random, steady_time end);
  void expect_every_worker_advances();
  void stop_all();

  arena* arena_ = nullptr;
  std::string folder_;
  std::uint32_t lives_ = 0;
  pid_t pids_[worker_count]{};
};

// One round: a storm until `end` or until the workers have filled their notes, then calm, then the judgement.
long storm::run_a_round(std::mt19937_64& random, steady_time end) {
  for (std::size_t i = 0; i < worker_count; ++i) spawn(i);
  long kills = 0;
  while (std::chrono::steady_clock::now() < end && arena_->complaints.load() == 0 &&
         !arena_->is_full()) {
    // The instant of the kill is the fault: from "still opening the store" to "thousands of turns".
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 4000});
    const std::size_t victim = random() % worker_count;
    shoot(victim);
    spawn(victim);
    ++kills;
  }
  expect_every_worker_advances();
  stop_all();
  EXPECT_EQ(arena_->complaints.load(), 0) << "the first: " << arena_->complaint;
  for (const auto& each : testing::judge(arena_->record()).complaints) ADD_FAILURE() << each;
  return kills;
}

// The storm is over. Every worker alive must go on having turns, whatever the dead left behind.
void storm::expect_every_worker_advances() {
  std::uint64_t before[worker_count];
  for (std::size_t i = 0; i < worker_count; ++i) before[i] = arena_->turns[i].load();
  const auto last = std::chrono::steady_clock::now() + patience;
  for (std::size_t i = 0; i < worker_count; ++i) {
    while (arena_->turns[i].load() < before[i] + 200 && std::chrono::steady_clock::now() < last) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_GE(arena_->turns[i].load(), before[i] + 200) << "worker " << i << " stands still";
  }
}

void storm::stop_all() {
  arena_->stop = true;
  for (auto& pid : pids_) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    pid = 0;
  }
}

TEST_P(storm, nobody_overlaps_and_everybody_advances_while_workers_are_killed) {
  const auto seed = from_environment("HOLDFAST_STORM_SEED", std::random_device{}() & 0x7FFFFFFF);
  const auto length = 1000ms * from_environment("HOLDFAST_STORM_SECONDS", 10) / 3;
  std::mt19937_64 random{static_cast<std::uint64_t>(seed)};
  setenv("HOLDFAST_FILE_NO_WAITV", std::get<1>(GetParam()), 1);
  long kills = 0;
  std::size_t judged = 0;
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end && !HasFailure()) {
    make_arena();
    kills += run_a_round(random, end);
    judged += std::min(arena_->noted.load(), note_count);
  }
  unsetenv("HOLDFAST_FILE_NO_WAITV");
  std::printf("seed %ld: %ld kills, %zu turns judged\n", static_cast<long>(seed), kills, judged);
}

INSTANTIATE_TEST_SUITE_P(file, storm,
                         ::testing::Values(std::tuple{workload::exclusive, "0"},
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
