// The engine behind file: one mapping, one session, one session thread.
//
// Verbs by file: engine.cpp opens and closes, enter.cpp and release.cpp have the uncontended path and what
// happens when it is not, await.cpp sleeps, operate.cpp shows and revokes, count.cpp has counters and watch.
#pragma once

#include <holdfast/engine.hpp>

#include "engines/file/mapping.hpp"
#include "engines/file/session_thread.hpp"
#include "engines/file/shard.hpp"
#include "engines/file/wait.hpp"
#include "support/fork.hpp"

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace holdfast::engines::file {

// Something watched: a lock's holders or a counter. The entry that is told of changes exists from the first
// look on.
struct watched {
  watch_kind kind;
  std::string_view name;
  std::uint64_t seen;
  std::uint64_t handle = 0;  // of the entry
};

class file_engine final : public engine {
 public:
  explicit file_engine(std::unique_ptr<mapping> store, const engine_config& config);
  ~file_engine() override;
  result<void> start();

  const capabilities& caps() const noexcept override { return caps_; }
  result<entered> enter(const request& ask, const call& limits) override;
  result<progress> await(const ticket& place, const call& limits) override;
  result<void> leave(const ticket& place, const call& limits) override;
  result<session_proof> renew(std::span<renewal> batch, const call& limits) override;
  result<void> release(const grant& held, const call& limits) override;
  result<grant> downgrade(const grant& held, lock_mode to, const call& limits) override;
  result<entered> settle(const request& ask, const call& limits) override;
  result<lock_info> inspect(std::string_view name, const call& limits) override;
  result<std::vector<lock_info>> list(std::string_view prefix, std::size_t limit,
                                      const call& limits) override;
  result<std::size_t> revoke(std::string_view name, const call& limits) override;
  result<counter> count(const counter_request& ask, const call& limits) override;
  result<std::vector<counter_info>> list_counters(std::string_view prefix, std::size_t limit,
                                                  const call& limits) override;
  result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                     const call& limits) override;
  bool contended(const grant& held) const noexcept override;
  void start_enter(const request& ask, const call& limits,
                   completion<entered>& done) noexcept override;
  void start_leave(const ticket& place, const call& limits,
                   completion<void>& done) noexcept override;
  void start_release(const grant& held, const call& limits,
                     completion<void>& done) noexcept override;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override;
  void start_settle(const request& ask, const call& limits,
                    completion<entered>& done) noexcept override;
  void start_inspect(std::string_view name, const call& limits,
                     completion<lock_info>& done) noexcept override;
  void start_count(const counter_request& ask, const call& limits,
                   completion<counter>& done) noexcept override;
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  class async_await;
  class async_watch;
  bool is_forked() const noexcept { return support::fork_generation() != forks_; }
  bool may_be_fast(const request& ask) const noexcept;
  struct fast_entry {
    std::uint64_t word, token;
    std::int64_t expires;
  };
  enum class taken { no, yes, doubtful };
  taken take_fast(std::uint64_t handle, const request& ask, fast_entry& out) noexcept;
  result<std::optional<entered>> adopt(std::uint64_t handle, const request& ask,
                                       const fast_entry& got, const call& limits);
  result<entered> granted(const fast_entry& got, std::uint64_t handle, const request& ask) const;
  bool is_surely_busy(const request& ask, std::uint64_t memo) const noexcept;
  result<entered> enter_slowly(const request& ask, const call& limits);
  std::optional<entered> find_known(locked_shard& shard, record& in, const request& ask,
                                    bool in_any_mode = false);
  result<entered> enter_queue(locked_shard& shard, record& in, const request& ask);
  entered granted(const entry& holder, std::string_view name, const owner_id& owner) const noexcept;
  entered waiting(const entry& waiter, const request& ask) const noexcept;
  template <class Info, class Look>
  result<std::vector<Info>> gather(std::size_t limit, const call& limits, Look look);
  bool is_new(std::uint64_t sequence) noexcept;
  // The same for this client and its successors.
  std::uint64_t client_mark() const noexcept {
    return config_.client[0] ^ std::rotl(config_.client[1], 32);
  }
  bool notes_are_of(const record& in, std::uint64_t word, std::uint64_t sequence) const noexcept;

  std::optional<grant> delivered(const entry& waiter, const ticket& place) const noexcept;
  result<look_result> look(const ticket& place, std::uint32_t cookie, const call& limits);
  bool is_at(const entry& waiter, const ticket& place) const noexcept;
  result<bool> look_at(watched& what, std::uint32_t cookie, const call& limits, look_result& out);
  void stop_watching(watched& what, const call& limits) noexcept;

  std::uint32_t shard_with(std::uint64_t handle) const noexcept {
    return store_->chunk_around(where_of(handle)).shard;
  }
  result<void> release_slowly(const grant& held, const call& limits);
  bool give_back_fast(record& in, const grant& held) noexcept;
  result<void> renew_all(std::span<renewal> batch, const call& limits);
  result<void> renew_in_shard(renewal& lease, const call& limits);
  bool renew_fast(renewal& lease) noexcept;

  mapping& store() const noexcept { return *store_; }

  std::unique_ptr<mapping> store_;
  environment env_;
  std::uint64_t seed_;
  std::uint64_t forks_;
  bool can_spin_;
  const result<entered> blank_{entered{entered::kind::granted, {}, {}}};
  std::atomic<std::uint64_t> newest_{0};  // owner that came to a queue
  engine_config config_;
  capabilities caps_;
  std::unique_ptr<session_thread> session_thread_;
};

not_done forked_error(const mapping& store);
error not_held_error(std::string_view name);

}  // namespace holdfast::engines::file
