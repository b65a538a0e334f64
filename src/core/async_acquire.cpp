#include "core/async_acquire.hpp"

#include "core/upgrade.hpp"

namespace holdfast::core {

template <class T>
bool async_machine<T>::take_options(acquire_options asked) {
  auto checked = this->core().checked(std::move(asked));
  if (!checked) {
    this->finish(std::move(checked).error());
    return false;
  }
  options_ = std::move(*checked);
  this->cancel_with(options_.stop);
  since_ = this->core().clock().now();
  return true;
}

template <class T>
void async_machine<T>::ask_store(const request& ask, steady_time since, nanoseconds wait) {
  auto& core = this->core();
  machine_.emplace(
      ask, core.caps(),
      acquire_machine::limits{deadline_after(since, wait), core.options().call_timeout},
      this->stop(), [this] { return fresh_owner(); });
  run(machine_->start(core.clock().now()));
}

// Issues one step after the other. An answer that comes while the step is still being issued is
// picked up by this loop instead of recursing; one that comes later, on whatever thread, starts the
// loop again.
template <class T>
void async_machine<T>::run(step next) {
  while (next != step::done) {
    current_ = next;
    flow_.store(flow::issued);
    issue(next);
    if (flow_.exchange(flow::parked) != flow::answered) return;
    next = next_;
  }
  concluded(this->core().conclude(*machine_), *machine_);
}

template <class T>
void async_machine<T>::issue(step what) {
  auto& store = this->core().store();
  limits_ = machine_->next_call(this->core().clock().now());
  limits_.deadline = this->core().on_steady_clock(limits_.deadline);
  switch (what) {
    case step::enter:
      this->core().losses_told_early().take(machine_->ask().owner);  // not about what this brings
      return store.start_enter(machine_->ask(), limits_, *this);
    case step::await:
      return store.start_await(machine_->place(), limits_, *this);
    case step::leave:
      return store.start_leave(machine_->place(), limits_, *this);
    case step::settle:
      return store.start_settle(machine_->ask(), limits_, *this);
    case step::give_back:
      return store.start_release(machine_->stale(), limits_, *this);
    case step::pause:
      this->core().at(machine_->pause_until(), [self = this->shared_from_this(), this] {
        advance(machine_->on_resumed(this->core().clock().now()));
      });
      return;
    case step::done:
      return;
  }
}

template <class T>
void async_machine<T>::advance(step next) {
  next_ = next;
  if (flow_.exchange(flow::answered) == flow::parked) run(next);
}

template <class T>
void async_machine<T>::complete(result<entered> answer) noexcept {
  const background_thread mark;
  const auto now = this->core().clock().now();
  advance(current_ == step::settle ? machine_->on_settled(std::move(answer), now)
                                   : machine_->on_entered(std::move(answer), now));
}

template <class T>
void async_machine<T>::complete(result<progress> answer) noexcept {
  const background_thread mark;
  advance(machine_->on_progress(std::move(answer), this->core().clock().now()));
}

template <class T>
void async_machine<T>::complete(result<void> answer) noexcept {
  const background_thread mark;
  const auto now = this->core().clock().now();
  advance(current_ == step::leave ? machine_->on_left(std::move(answer), now)
                                  : machine_->on_given_back(answer, now));
}

template class async_machine<lease>;
template class async_machine<void>;

namespace {

class exclusive_acquire final : public async_machine<lease>, private gate::waiter {
 public:
  exclusive_acquire(std::shared_ptr<gate> at, acquire_options asked, acquired_hook hook)
      : async_machine(handle_of(at)),
        gate_(std::move(at)),
        asked_(std::move(asked)),
        hook_(std::move(hook)) {}

 private:
  void begin() override {
    if (!take_options(std::move(asked_))) return;
    priority = options_.priority;
    ttl = *options_.ttl;
    max_hold = options_.max_hold;
    own_token = options_.own_token || options_.outlives_client;
    label = options_.label;
    switch (gate_->begin(generation, options_.wait > nanoseconds::zero() ? this : nullptr)) {
      case gate::begun::lead:
        return lead();
      case gate::begun::busy:
        return finish(core().note_failure(
            {errc::busy, "lock '" + gate_->name + "' is held by another user in this process"}));
      case gate::begun::queued:
        return watch_the_clock();
    }
  }

  // Queued behind others of this process: time and stop take us out, unless we are being served already.
  void watch_the_clock() {
    const auto self = std::static_pointer_cast<exclusive_acquire>(shared_from_this());
    if (const auto deadline = deadline_after(since_, options_.wait);
        deadline != steady_time::max()) {
      const auto planned = core().at(deadline, [weak = std::weak_ptr{self}] {
        if (const auto alive = weak.lock()) alive->withdraw(false);
      });
      const std::lock_guard locked{timer_guard_};
      if (timer_over_) {
        core().cancel(planned);
      } else {
        timer_ = planned;
      }
    }
    local_stop_.emplace(stop(), on_stop{this});
  }
  // The queue is behind us: a timer that is left would be kept until its time, an hour perhaps.
  void end_timer() noexcept {
    const std::lock_guard locked{timer_guard_};
    timer_over_ = true;
    if (timer_) core().cancel(*timer_);
  }
  void withdraw(bool cancelled) noexcept {
    if (!gate_->withdraw(*this)) return;
    end_timer();
    finish(core().note_failure(gave_up(gate_->name, cancelled)));
  }
  void served(news what) noexcept override {
    const background_thread mark;
    end_timer();
    if (what == news::lead) return lead();
    gate_->note_handed(token, since_);
    succeed(token);
  }

  void lead() { ask_store(gate_->make_request(options_), since_, options_.wait); }
  owner_id fresh_owner() override { return gate_->new_owner(); }
  void concluded(result<grant> answer, const acquire_machine&) override {
    if (!answer) {
      gate_->lead_failed(generation);
      return finish(core().note_failure(std::move(answer).error()));
    }
    gate_->won(*answer, options_, since_);
    succeed(answer->token);
  }
  void resuming() noexcept override {
    if (hook_ && outcome->has_value()) hook_(generation);
  }
  void succeed(fencing_token with) { finish(lease_access::make(gate_, {generation, with})); }

  struct on_stop {
    exclusive_acquire* waiting;
    void operator()() const noexcept { waiting->withdraw(true); }
  };
  std::shared_ptr<gate> gate_;
  acquire_options asked_;
  acquired_hook hook_;
  std::optional<std::stop_callback<on_stop>> local_stop_;
  std::mutex timer_guard_;
  std::optional<driver::timer> timer_;
  bool timer_over_ = false;
};

class share_acquire final : public async_machine<lease> {
 public:
  share_acquire(std::shared_ptr<client_core> core, std::string name, const share& kind,
                acquire_options asked)
      : async_machine(std::move(core)),
        name_(std::move(name)),
        kind_(kind),
        asked_(std::move(asked)) {}

 private:
  void begin() override {
    if (!take_options(std::move(asked_))) return;
    target_ = core().new_hold(name_);
    ask_store(make_request(*target_, kind_, options_), since_, options_.wait);
  }
  owner_id fresh_owner() override { return target_->new_owner(); }
  void concluded(result<grant> answer, const acquire_machine&) override {
    if (!answer) return finish(core().note_failure(std::move(answer).error()));
    const auto generation = begin_alone(*target_);
    target_->won_alone(*answer, options_, since_);
    finish(lease_access::make(target_, {generation, answer->token}));
  }

  std::string name_;
  share kind_;
  acquire_options asked_;
  std::shared_ptr<hold> target_;
};

// The lease itself is touched only where its coroutine is known to be there: at the start and when it goes on. A
// coroutine that is destroyed while it is suspended may take its lease along.
class upgrade_operation final : public async_machine<void> {
 public:
  upgrade_operation(std::shared_ptr<client_core> core, lease& held, std::string name,
                    acquire_options asked)
      : async_machine(std::move(core)),
        held_(held),
        name_(std::move(name)),
        asked_(std::move(asked)) {}

 private:
  void begin() override {
    auto prepared = prepare_upgrade(held_, name_, asked_);
    if (!prepared) return finish(std::move(prepared).error());
    old_ = prepared->old;
    options_ = std::move(prepared->options);
    state_ = lease_access::state(held_);
    upgraded_.generation = lease_access::generation(held_);
    cancel_with(options_.stop);
    ask_store(upgrade_request(*state_, old_, options_), core().clock().now(), options_.wait);
  }
  owner_id fresh_owner() override { return state_->new_owner(); }
  void concluded(result<grant> answer, const acquire_machine& machine) override {
    if (!answer) {
      end_upgrade(*state_, upgraded_.generation, machine);
      return finish(core().note_failure(std::move(answer).error()));
    }
    upgraded_.token = answer->token;
    won_ = answer->owner;
    auto done = adopt_upgrade(*state_, upgraded_.generation, *answer);
    if (done && is_abandoned())
      undo_upgrade(*state_, upgraded_.generation, answer->owner, old_.owner);
    finish(std::move(done));
  }
  void resuming() noexcept override {
    if (outcome->has_value()) lease_access::refill(held_, upgraded_);
  }
  void dropped() noexcept override {
    if (outcome->has_value()) undo_upgrade(*state_, upgraded_.generation, won_, old_.owner);
  }

  lease& held_;
  std::shared_ptr<hold> state_;
  tenure upgraded_;
  owner_id won_;
  std::string name_;
  acquire_options asked_;
  grant old_;
};

class ready_operation final : public async_operation<lease> {
 public:
  ready_operation(std::shared_ptr<client_core> core, result<lease> answer)
      : async_operation(std::move(core)), answer_(std::move(answer)) {}

 private:
  void begin() override { finish(std::move(answer_)); }
  result<lease> answer_;
};

}  // namespace

async<lease> async_exclusive(std::shared_ptr<gate> at, acquire_options asked, acquired_hook hook) {
  return async<lease>{
      std::make_shared<exclusive_acquire>(std::move(at), std::move(asked), std::move(hook))};
}

async<lease> async_share(std::shared_ptr<client_core> core, std::string name, const share& kind,
                         acquire_options asked) {
  return async<lease>{
      std::make_shared<share_acquire>(std::move(core), std::move(name), kind, std::move(asked))};
}

async<void> async_upgrade(std::shared_ptr<client_core> core, lease& held, std::string name,
                          acquire_options asked) {
  return async<void>{std::make_shared<upgrade_operation>(std::move(core), held, std::move(name),
                                                         std::move(asked))};
}

async<lease> ready_lease(std::shared_ptr<client_core> core, result<lease> answer) {
  return async<lease>{std::make_shared<ready_operation>(std::move(core), std::move(answer))};
}

}  // namespace holdfast::core
