#include "core/counters.hpp"

#include "core/async_acquire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace holdfast::core {

namespace {

constexpr nanoseconds retry_pause = std::chrono::milliseconds{20};

error no_counters(const client_core& core) {
  return {errc::unsupported,
          core.url() + " has no counters, so neither latch nor barrier; its capabilities say so"};
}

error gave_up_waiting(const counter_wait& what) {
  if (what.stop.stop_requested())
    return {errc::cancelled, fmt::format("the wait for '{}' was cancelled", what.name)};
  return {errc::timed_out, fmt::format("'{}' did not open in the time given", what.name)};
}

// read -> done? -> watch -> read ...
class wait_operation final : public async_operation<void>,
                             private completion<counter>,
                             private completion<void> {
 public:
  wait_operation(std::shared_ptr<client_core> core, counter_wait what)
      : async_operation(std::move(core)), what_(std::move(what)) {}

 private:
  void begin() override {
    if (!core().caps().counters) return finish(no_counters(core()));
    cancel_with(what_.stop);
    deadline_ = deadline_after(core().clock().now(), what_.limit);
    ask_.name = what_.name;
    read();
  }
  void read() {
    limits_ = core().bounded_call();
    core().store().start_count(ask_, limits_, *this);
  }
  void complete(result<counter> answer) noexcept override {
    const background_thread mark;
    if (!answer) return try_again(std::move(answer).error());
    patience_ends_ = {};
    auto verdict = what_.done(*answer);
    if (!verdict) return finish(std::move(verdict).error());
    if (*verdict) return finish({});
    if (stop().stop_requested() || core().clock().now() >= deadline_)
      return finish(gave_up_waiting(what_));
    limits_ = {core().on_steady_clock(deadline_), stop()};
    core().store().start_watch(watch_kind::counter, what_.name, answer->version, limits_, *this);
  }
  void complete(result<void> answer) noexcept override {
    const background_thread mark;
    if (!answer) return try_again(std::move(answer).error());
    read();
  }
  // A store that is away for a moment costs a moment, as in count().
  void try_again(error why) {
    const auto now = core().clock().now();
    if (patience_ends_ == steady_time{}) patience_ends_ = now + core().options().call_timeout;
    if (why.code() != errc::unavailable || stop().stop_requested() || now >= patience_ends_)
      return finish(std::move(why));
    core().at(now + retry_pause, [self = shared_from_this(), this] { read(); });
  }

  counter_wait what_;
  counter_request ask_;
  steady_time deadline_{};
  steady_time patience_ends_{};  // zero while the store answers
  call limits_;
};

}  // namespace

result<counter> count(client_core& core, const counter_request& asked) {
  if (!core.usable_here()) return core.forked_error();
  if (!core.caps().counters) return no_counters(core);
  auto ask = asked;
  ask.keep = std::min(ask.keep, counter_request::longest_keep);
  const auto patience = core.clock().now() + core.options().call_timeout;
  for (;;) {
    auto answer = core.store().count(ask, core.bounded_call());
    if (answer || answer.error().code() != errc::unavailable || core.clock().now() >= patience)
      return answer;
    std::this_thread::sleep_for(retry_pause);
  }
}

result<void> wait_for(client_core& core, const counter_wait& what) {
  const auto deadline = deadline_after(core.clock().now(), what.limit);
  counter_request ask;
  ask.name = what.name;
  for (;;) {
    auto now = count(core, ask);
    if (!now) return std::move(now).error();
    auto verdict = what.done(*now);
    if (!verdict) return std::move(verdict).error();
    if (*verdict) return {};
    if (what.stop.stop_requested() || core.clock().now() >= deadline) return gave_up_waiting(what);
    auto told = core.store().watch(watch_kind::counter, what.name, now->version,
                                   {core.on_steady_clock(deadline), what.stop});
    if (!told && told.error().code() != errc::unavailable) return told;
    if (!told) std::this_thread::sleep_for(retry_pause);  // it may have said so at once
  }
}

async<void> async_wait_for(std::shared_ptr<client_core> core, counter_wait what) {
  return async<void>{std::make_shared<wait_operation>(std::move(core), std::move(what))};
}

}  // namespace holdfast::core
