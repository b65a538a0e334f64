// An engine whose client library blocks: the engine writes the plain verbs, and most start_ verbs are these on a thread
// of a pool, in the order of the calls. The arguments of a start_ verb live until its completion.
//
// What is not the plain verb on another thread stays with the engine, and has no default here:
//   start_await    must not keep a thread for as long as a client waits
//   start_watch    the same; watch() is this one, awaited
//   start_release  whatever is asked about the name afterwards finds it released, so it must not queue behind verbs
//                  that wait for it
//   start_renew    must not queue behind a flood of other verbs: that would cost held leases
//
// The threads call virtual verbs, so they must end before the engine's own members do: the destructor of the engine
// calls finish_work(), where its order of closing asks for it. What is posted from then on runs on the posting thread.
#pragma once

#include "engines/common/blocking_completion.hpp"
#include "engines/common/thread_pool.hpp"

#include <holdfast/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::engines {

class blocking_engine : public engine {
 public:
  void start_enter(const request& ask, const call& limits,
                   completion<entered>& done) noexcept final {
    post([this, &ask, &limits, &done] { done.complete(enter(ask, limits)); });
  }
  void start_leave(const ticket& place, const call& limits, completion<void>& done) noexcept final {
    post([this, &place, &limits, &done] { done.complete(leave(place, limits)); });
  }
  void start_enter_all(std::span<const request> asks, const call& limits,
                       completion<std::vector<grant>>& done) noexcept final {
    post([this, asks, &limits, &done] { done.complete(enter_all(asks, limits)); });
  }
  void start_settle(const request& ask, const call& limits,
                    completion<entered>& done) noexcept final {
    post([this, &ask, &limits, &done] { done.complete(settle(ask, limits)); });
  }
  void start_inspect(std::string_view name, const call& limits,
                     completion<lock_info>& done) noexcept final {
    post([this, name, &limits, &done] { done.complete(inspect(name, limits)); });
  }
  void start_count(const counter_request& ask, const call& limits,
                   completion<counter>& done) noexcept final {
    post([this, &ask, &limits, &done] { done.complete(count(ask, limits)); });
  }

  void start_release(const grant& held, const call& limits,
                     completion<void>& done) noexcept override = 0;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override = 0;

  result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                     const call& limits) final {
    blocking_completion<void> done;
    start_watch(kind, name, seen, limits, done);
    return done.get();
  }

 protected:
  explicit blocking_engine(std::size_t most_threads) : threads_(most_threads) {}

  // What else may block, for the engine's own use.
  void post(std::function<void()> work) { threads_.post(std::move(work)); }
  void finish_work() noexcept { threads_.finish(); }

 private:
  thread_pool threads_;
};

}  // namespace holdfast::engines
