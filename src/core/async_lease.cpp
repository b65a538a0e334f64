#include "core/async_lease.hpp"

#include "core/async_acquire.hpp"

namespace holdfast::core {

namespace {

// Of an empty lease, which has no client.
struct empty_operation final : detail::async_state<void> {
  bool start(std::coroutine_handle<>) override {
    outcome.emplace(nothing_held());
    return true;
  }
  void abandon() noexcept override {}
  void cancel() noexcept override {}
};

// What both share: the lease that they are asked about, and what it was when they were made.
class lease_operation : public async_operation<void> {
 public:
  explicit lease_operation(lease& held)
      : async_operation(handle_of(lease_access::state(held))),
        held_(held),
        state_(lease_access::state(held)),
        generation_(lease_access::generation(held)) {}

 protected:
  // Else it was released, or is another lease by now, perhaps of another client.
  bool is_the_same() const noexcept {
    return lease_access::state(held_) == state_ && lease_access::generation(held_) == generation_;
  }
  lease& held_;  // in begin() only
  std::shared_ptr<hold> state_;
  std::uint64_t generation_;
  grant granted_;
  call limits_;
};

// Once the release is on its way it is carried out, also when the coroutine is destroyed.
class release_operation final : public lease_operation,
                                private completion<entered>,
                                private completion<void> {
 public:
  using lease_operation::lease_operation;

 private:
  void begin() override {
    if (!is_the_same()) return finish(nothing_held());
    lease_access::take(held_);
    lease_access::take_state(held_);
    switch (state_->begin_release(generation_)) {
      case hold::release_begun::ask_store:
        return ask_store();
      case hold::release_begun::done:
        return finish({});
      case hold::release_begun::lost:
        return finish(state_->lost_before_release());
    }
  }
  void ask_store() {
    granted_ = state_->granted;
    is_in_doubt_ = state_->changing.load();
    limits_ = core().caps().immediate ? client_core::unbounded : core().bounded_call();
    if (is_in_doubt_) {
      ask_ = state_->settle_request();
      return core().store().start_settle(ask_, limits_, *this);
    }
    core().store().start_release(granted_, limits_, *this);
  }
  // As hold::release_what_is_there.
  void complete(result<entered> found) noexcept override {
    const background_thread mark;
    if (found && found->what == entered::kind::busy) return end({});
    if (!found || found->what != entered::kind::granted) return end(state_->release_unconfirmed());
    granted_ = found->granted;
    granted_.name = state_->name;
    limits_ = core().bounded_call();
    core().store().start_release(granted_, limits_, *this);
  }
  void complete(result<void> answer) noexcept override {
    const background_thread mark;
    if (!is_in_doubt_) return end(std::move(answer));
    const bool is_gone = answer || answer.error().code() == errc::not_held;
    end(is_gone ? result<void>{} : state_->release_unconfirmed());
  }
  void end(result<void> answer) { finish(state_->end_release(generation_, std::move(answer))); }

  request ask_;
  bool is_in_doubt_ = false;
};

class renew_operation final : public lease_operation, private completion<session_proof> {
 public:
  using lease_operation::lease_operation;

 private:
  void begin() override {
    if (!is_the_same()) return finish(nothing_held());
    since_ = core().clock().now();
    const auto current = state_->current_grant(generation_);
    if (!current || !state_->valid_at(generation_, since_)) return finish(state_->lost_error());
    granted_ = *current;
    asked_.held = &granted_;
    asked_.must_ask = true;
    limits_ = core().bounded_call();
    core().store().start_renew({&asked_, 1}, limits_, *this);
  }
  void complete(result<session_proof> answer) noexcept override {
    const background_thread mark;
    finish(core().conclude_renewal(*state_, generation_, asked_, answer, since_));
  }

  steady_time since_{};
  renewal asked_;
};

template <class Operation>
async<void> operation_on(lease& held) {
  if (lease_access::generation(held) == 0) return async<void>{std::make_shared<empty_operation>()};
  return async<void>{std::make_shared<Operation>(held)};
}

}  // namespace

error nothing_held() {
  return {errc::not_held, "this lease is empty: it was released, or moved from"};
}

async<void> async_release(lease& held) { return operation_on<release_operation>(held); }

async<void> async_renew(lease& held) { return operation_on<renew_operation>(held); }

}  // namespace holdfast::core
