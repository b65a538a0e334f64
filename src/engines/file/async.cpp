// The start_ verbs: start_await and start_watch are waits that the session thread serves; the others are done at once,
// or fail when the shard does not answer in a moment. They run on threads that other callers need too.
#include "engines/file/file_engine.hpp"

#include <algorithm>

namespace holdfast::engines::file {

class file_engine::async_await final : public async_wait {
 public:
  async_await(file_engine& owner, const ticket& place, completion<progress>& done)
      : owner_(owner), place_(place), done_(done) {}

  bool look(std::uint32_t cookie, look_result& out) noexcept override {
    auto now = owner_.look(place_, cookie, impatient());
    if (!now) {
      outcome_ = now.error();
      return true;
    }
    out = *now;
    if (out.done) outcome_ = progress{out.granted.has_value(), out.granted.value_or(grant{})};
    return out.done;
  }
  bool may_have_moved() const noexcept override {
    const entry& waiter = owner_.store().entry_at(where_of(place_.handle));
    return waiter.state.get() != entry_state::waiting || !owner_.is_at(waiter, place_);
  }
  void give_up() noexcept override {
    look_result last;
    // From now on a blocking thread may wait for it, or none; and it may have arrived this very moment.
    if (!look(0, last)) outcome_ = progress{};
  }
  void cancel() noexcept override { outcome_ = progress{}; }
  void complete() noexcept override { done_.complete(std::move(outcome_)); }

 private:
  file_engine& owner_;
  ticket place_;
  completion<progress>& done_;
  result<progress> outcome_{progress{}};
};

class file_engine::async_watch final : public async_wait {
 public:
  async_watch(file_engine& owner, const watched& what, completion<void>& done)
      : owner_(owner), what_(what), done_(done) {}

  bool look(std::uint32_t cookie, look_result& out) noexcept override {
    const auto changed = owner_.look_at(what_, cookie, impatient(), out);
    if (!changed) outcome_ = changed.error();
    return !changed || *changed;
  }
  bool may_have_moved() const noexcept override { return true; }
  void give_up() noexcept override { owner_.stop_watching(what_, impatient()); }
  void cancel() noexcept override { owner_.stop_watching(what_, impatient()); }
  void complete() noexcept override {
    owner_.stop_watching(what_, impatient());
    done_.complete(std::move(outcome_));
  }

 private:
  file_engine& owner_;
  watched what_;
  completion<void>& done_;
  result<void> outcome_{};
};

void file_engine::start_enter(const request& ask, const call& limits,
                              completion<entered>& done) noexcept {
  done.complete(enter(ask, impatient(limits.stop)));
}
void file_engine::start_leave(const ticket& place, const call& limits,
                              completion<void>& done) noexcept {
  done.complete(leave(place, impatient(limits.stop)));
}
void file_engine::start_release(const grant& held, const call& limits,
                                completion<void>& done) noexcept {
  done.complete(release(held, impatient(limits.stop)));
}
void file_engine::start_settle(const request& ask, const call& limits,
                               completion<entered>& done) noexcept {
  done.complete(settle(ask, impatient(limits.stop)));
}
void file_engine::start_inspect(std::string_view name, const call& limits,
                                completion<lock_info>& done) noexcept {
  done.complete(inspect(name, impatient(limits.stop)));
}
void file_engine::start_count(const counter_request& ask, const call& limits,
                              completion<counter>& done) noexcept {
  done.complete(count(ask, impatient(limits.stop)));
}

void file_engine::start_await(const ticket& place, const call& limits,
                              completion<progress>& done) noexcept {
  if (is_forked()) return done.complete(forked_error(store()));
  const entry& waiter = store().entry_at(where_of(place.handle));
  if (const auto got = delivered(waiter, place)) return done.complete(progress{true, *got});
  auto wait = std::make_unique<async_await>(*this, place, done);
  wait->deadline = std::min(limits.deadline, place.recheck_at);
  wait->stop = limits.stop;
  session_thread_->add(std::move(wait));
}

void file_engine::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                              const call& limits, completion<void>& done) noexcept {
  if (is_forked()) return done.complete(forked_error(store()));
  auto wait = std::make_unique<async_watch>(*this, watched{kind, name, seen}, done);
  wait->deadline = limits.deadline;
  wait->stop = limits.stop;
  session_thread_->add(std::move(wait));
}

}  // namespace holdfast::engines::file
