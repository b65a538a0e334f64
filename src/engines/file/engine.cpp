// Opening and closing.
#include "engines/file/engine.hpp"

#include "engines/file/file_engine.hpp"
#include "engines/file/path.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace holdfast::engines::file {

namespace {

bool may_use_waitv() {
  const char* forbidden = std::getenv("HOLDFAST_FILE_NO_WAITV");  // for tests of the way without
  if (forbidden != nullptr && std::strcmp(forbidden, "1") == 0) return false;
  return has_futex_waitv();
}

capabilities describe(bool can_wait_any) {
  capabilities caps;
  caps.engine = "file";
  caps.fifo = caps.priorities = caps.shared = caps.upgrade = caps.permits = true;
  caps.counters = caps.observe = caps.listing = caps.cross_process = caps.immediate = true;
  caps.outlives_client = true;
  caps.wakeup = wakeup_kind::push;
  caps.clock = expiry_clock::local_steady;
  caps.token = token_origin::counter;
  caps.fencing = fencing_strength::strict;
  caps.min_ttl = std::chrono::milliseconds{10};
  caps.max_ttl = longest_ttl;
  caps.dead_holder_bound = can_wait_any ? std::chrono::milliseconds{1} : look_again;
  caps.expiry_slack = back_stop;
  caps.exclusion =
      "One holder at a time among all processes of one user on one machine, as long as each holder "
      "keeps within its ttl; the kernel tells at once when a holder dies.";
  caps.token_scope =
      "Strictly rising per lock name, over deaths, restarts and reboots, also when the file was "
      "removed in between (then by the wall clock).";
  caps.limits = fmt::format(
      "One machine, one user, one time namespace; {} clients at a time; not on network file "
      "systems.",
      session_count);
  return caps;
}

}  // namespace

not_done forked_error(const mapping& store) {
  return {errc::misconfigured,
          fmt::format(
              "The store {} was opened before fork() and is used in the child; open a client of "
              "its own there.",
              store.path())};
}

file_engine::file_engine(std::unique_ptr<mapping> opened, const engine_config& config)
    : store_(std::move(opened)),
      env_{*store_, config.clock.local(), {}, 0, may_use_waitv()},
      seed_(store_->head().fixed.hash_seed),
      forks_(support::fork_generation()),
      can_spin_(std::thread::hardware_concurrency() > 1),
      config_(config),
      caps_(describe(env_.can_wait_any)),
      session_thread_(std::make_unique<session_thread>(env_, config_)) {}

result<void> file_engine::start() { return session_thread_->start(); }

// The session ends with its thread: whatever we still hold is now a dead session's, and its waiters are awake.
file_engine::~file_engine() {
  if (is_forked()) {
    // The parent's: neither its thread nor its session are ours to end.
    session_thread_->abandon();
    (void)session_thread_.release();
    return;
  }
  session_thread_->stop();
}

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  const auto options = locate(config.url);
  if (!options) return options.error();
  auto store = mapping::open(*options);
  if (!store) return store.error();
  auto opened = std::make_unique<file_engine>(std::move(*store), config);
  if (auto started = opened->start(); !started) return started.error();
  return std::unique_ptr<engine>{std::move(opened)};
}

}  // namespace holdfast::engines::file
