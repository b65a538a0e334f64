// An engine whose store is asked over a connection: both faces of every verb, the blocking one and the one that
// completes, over one operation each (operation.hpp). What an engine writes is the operations, how a wait begins, and
// what it alone can say: capabilities, upkeep, views.
#pragma once

#include "engines/common/blocking_completion.hpp"
#include "engines/common/operation.hpp"

#include <holdfast/engine.hpp>

#include <span>
#include <string_view>
#include <vector>

namespace holdfast::engines {

class remote_engine : public engine {
 public:
  result<entered> enter(const request& ask, const call& limits) final {
    return do_enter(ask, {limits, true}).run();
  }
  void start_enter(const request& ask, const call& limits,
                   completion<entered>& done) noexcept final {
    do_enter(ask, {limits, false}).start(done);
  }
  result<void> leave(const ticket& place, const call& limits) final {
    return do_leave(place, {limits, true}).run();
  }
  void start_leave(const ticket& place, const call& limits, completion<void>& done) noexcept final {
    do_leave(place, {limits, false}).start(done);
  }
  result<void> release(const grant& held, const call& limits) final {
    return do_release(held, {limits, true}).run();
  }
  void start_release(const grant& held, const call& limits, completion<void>& done) noexcept final {
    do_release(held, {limits, false}).start(done);
  }
  result<entered> settle(const request& ask, const call& limits) final {
    return do_settle(ask, {limits, true}).run();
  }
  void start_settle(const request& ask, const call& limits,
                    completion<entered>& done) noexcept final {
    do_settle(ask, {limits, false}).start(done);
  }
  result<std::vector<grant>> enter_all(std::span<const request> asks, const call& limits) final {
    return do_enter_all(asks, {limits, true}).run();
  }
  void start_enter_all(std::span<const request> asks, const call& limits,
                       completion<std::vector<grant>>& done) noexcept final {
    do_enter_all(asks, {limits, false}).start(done);
  }
  result<lock_info> inspect(std::string_view name, const call& limits) final {
    return do_inspect(name, {limits, true}).run();
  }
  void start_inspect(std::string_view name, const call& limits,
                     completion<lock_info>& done) noexcept final {
    do_inspect(name, {limits, false}).start(done);
  }
  result<counter> count(const counter_request& ask, const call& limits) final {
    return do_count(ask, {limits, true}).run();
  }
  void start_count(const counter_request& ask, const call& limits,
                   completion<counter>& done) noexcept final {
    do_count(ask, {limits, false}).start(done);
  }
  // Core calls these on threads that may block.
  result<session_proof> renew(std::span<renewal> batch, const call& limits) final {
    return do_renew(batch, {limits, true}).run();
  }
  // Upkeep may be cheaper than proof, where an engine knows how.
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override {
    do_renew(batch, {limits, false}).start(done);
  }
  result<grant> downgrade(const grant& held, lock_mode to, const call& limits) final {
    return do_downgrade(held, to, {limits, true}).run();
  }
  result<std::vector<lock_info>> list(std::string_view prefix, std::size_t limit,
                                      const call& limits) final {
    return do_list(prefix, limit, {limits, true}).run();
  }
  result<std::vector<counter_info>> list_counters(std::string_view prefix, std::size_t limit,
                                                  const call& limits) final {
    return do_list_counters(prefix, limit, {limits, true}).run();
  }
  result<std::size_t> revoke(std::string_view name, const call& limits) final {
    return do_revoke(name, {limits, true}).run();
  }

  // The waiting thread looks at its own deadline, so no timer is set for it.
  result<progress> await(const ticket& place, const call& limits) final {
    call without_deadline;
    without_deadline.stop = limits.stop;
    blocking_completion<progress> done;
    start_await(place, without_deadline, done);
    if (!done.is_there_by(limits.deadline)) end_await(place);  // or the news is on its way already
    return done.get();
  }
  result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                     const call& limits) final {
    blocking_completion<void> done;
    start_watch(kind, name, seen, limits, done);
    return done.get();
  }

  // The verbs as operations, for an engine that is made of others. What one is given stays alive until it is done.
  virtual operation<entered> do_enter(const request& ask, invocation how) = 0;
  virtual operation<void> do_leave(const ticket& place, invocation how) = 0;
  virtual operation<void> do_release(const grant& held, invocation how) = 0;
  virtual operation<entered> do_settle(const request& ask, invocation how) = 0;
  virtual operation<session_proof> do_renew(std::span<renewal> batch, invocation how) = 0;
  virtual operation<grant> do_downgrade(const grant& held, lock_mode to, invocation how) = 0;
  virtual operation<lock_info> do_inspect(std::string_view name, invocation how) = 0;
  virtual operation<std::vector<lock_info>> do_list(std::string_view prefix, std::size_t limit,
                                                    invocation how) = 0;
  virtual operation<std::size_t> do_revoke(std::string_view name, invocation how) = 0;
  virtual operation<counter> do_count(const counter_request& ask, invocation how) = 0;
  virtual operation<std::vector<counter_info>> do_list_counters(std::string_view prefix,
                                                                std::size_t limit,
                                                                invocation how) = 0;
  // Only where capabilities().atomic_multi.
  virtual operation<std::vector<grant>> do_enter_all(std::span<const request>, invocation) {
    co_return error{errc::unsupported, "this store cannot take several locks at once"};
  }
  // A start_await() of this place that is under way completes now. Nothing to do when there is none.
  virtual void end_await(const ticket& place) noexcept = 0;
};

}  // namespace holdfast::engines
