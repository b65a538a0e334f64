#include "support/flaky_engine.hpp"

#include "engines/registry.hpp"

#include <algorithm>
#include <new>
#include <thread>

namespace holdfast::testing {

namespace {

error unknown() { return {errc::outcome_unknown, "The test swallowed the answer."}; }
error refused() { return {errc::unavailable, "The test refused the call."}; }
error denied() { return not_done{errc::denied, "The test denied the call."}; }
error garbled() { return {errc::protocol, "The test garbled the answer."}; }

bool take_one(std::atomic<int>& left) {
  auto now = left.load();
  while (now > 0 && !left.compare_exchange_weak(now, now - 1)) {
  }
  return now > 0;
}

// Stands between: what the store answered is not passed on.
template <class T>
class swallowed final : public completion<T> {
 public:
  explicit swallowed(completion<T>& to, error instead = unknown())
      : to_(to), instead_(std::move(instead)) {}
  void complete(result<T>) noexcept override {
    auto& to = to_;
    auto instead = std::move(instead_);
    delete this;
    to.complete(std::move(instead));
  }

 private:
  completion<T>& to_;
  error instead_;
};

// Stands between the store and core: what the store tells unasked is passed on, or not.
class loss_filter final : public engine_listener {
 public:
  loss_filter(engine_listener& to, std::shared_ptr<faults> plan)
      : to_(to), plan_(std::move(plan)) {}
  void on_lost(std::span<const owner_id> owners, std::string_view why) noexcept override {
    if (!plan_->hide_losses) to_.on_lost(owners, why);
  }
  void on_session_lost(std::uint64_t number, std::string_view why) noexcept override {
    if (!plan_->hide_losses) to_.on_session_lost(number, why);
  }

 private:
  engine_listener& to_;
  std::shared_ptr<faults> plan_;
};

void hang(const call& limits) {
  while (std::chrono::steady_clock::now() < limits.deadline && !limits.stop.stop_requested())
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
}

class flaky_engine final : public engine {
 public:
  flaky_engine(std::unique_ptr<loss_filter> listener, std::unique_ptr<engine> inner,
               std::shared_ptr<faults> plan, const clock& time)
      : listener_(std::move(listener)),
        inner_(std::move(inner)),
        plan_(std::move(plan)),
        clock_(time),
        caps_(inner_->caps()) {
    if (plan_->session > nanoseconds::zero()) caps_.longest_validity = plan_->session;
    caps_.session_needs_heartbeats = plan_->needs_heartbeats;
  }

  ~flaky_engine() override {
    for (auto* unanswered : hanging_) unanswered->complete(unknown());
  }

  const capabilities& caps() const noexcept override { return caps_; }

  result<entered> enter(const request& ask, const call& limits) override {
    const auto number = ++plan_->enters;
    if (take_one(plan_->refuse_enters)) return refused();
    if (take_one(plan_->lose_enter_requests)) return unknown();
    if (number == plan_->deny_enter_number || take_one(plan_->deny_enters)) return denied();
    if (take_one(plan_->enters_out_of_memory)) throw std::bad_alloc{};
    if (plan_->hang_enters) {
      hang(limits);
      return unknown();
    }
    auto proof = prove();
    proof.proven_at -= plan_->proof_age.load();
    auto answer = inner_->enter(ask, limits);
    if (answer && proof.number != 0) answer->granted.session = proof;
    if (take_one(plan_->lose_entered)) tell_loss(ask.owner);
    if (take_one(plan_->drop_enter_replies)) return unknown();
    if (take_one(plan_->garble_enters)) return garbled();
    return answer;
  }
  result<progress> await(const ticket& place, const call& limits) override {
    if (take_one(plan_->nudge_awaits)) return progress{};
    return inner_->await(place, limits);
  }
  result<void> leave(const ticket& place, const call& limits) override {
    if (take_one(plan_->fail_leaves)) return refused();
    return inner_->leave(place, limits);
  }
  result<session_proof> renew(std::span<renewal> batch, const call& limits) override {
    const auto proof = prove();
    if (batch.empty()) ++plan_->heartbeats;
    if (batch.empty() && plan_->fail_heartbeats) return refused();
    if (batch.empty() && proof.number != 0) return proof;
    ++plan_->renewals;
    {
      const std::lock_guard lock{plan_->guard};
      for (const auto& lease : batch) ++plan_->renewed[lease.held->owner];
    }
    std::this_thread::sleep_for(plan_->delay_renewals.load());
    if (plan_->fail_renewals) return refused();
    auto answer = inner_->renew(batch, limits);
    for (auto& asked : batch) {
      if (proof.number != 0 && !plan_->renewals_prove_nothing) asked.session = proof;
      if (plan_->hide_verdicts) asked.answer = renewal::verdict::unknown;
    }
    std::this_thread::sleep_for(plan_->delay_renewal_answers.load());
    if (plan_->drop_renewals) return unknown();
    if (!answer || proof.number == 0 || plan_->renewals_prove_nothing) return answer;
    return proof;
  }
  result<void> release(const grant& held, const call& limits) override {
    ++plan_->releases;
    auto answer = inner_->release(held, limits);
    if (take_one(plan_->drop_release_replies)) return unknown();
    return answer;
  }
  result<grant> downgrade(const grant& held, lock_mode to, const call& limits) override {
    const auto number = ++plan_->downgrades;
    if (number == plan_->refuse_downgrade_number) return refused();
    if (take_one(plan_->lose_downgrades)) return unknown();
    auto answer = inner_->downgrade(held, to, limits);
    if (answer && take_one(plan_->lose_downgraded)) tell_loss(answer->owner);
    if (take_one(plan_->drop_downgrade_replies)) return unknown();
    return answer;
  }
  result<entered> settle(const request& ask, const call& limits) override {
    ++plan_->settles;
    if (take_one(plan_->fail_settles)) return refused();
    return inner_->settle(ask, limits);
  }
  result<lock_info> inspect(std::string_view name, const call& limits) override {
    return inner_->inspect(name, limits);
  }
  result<std::vector<lock_info>> list(std::string_view prefix, std::size_t limit,
                                      const call& limits) override {
    return inner_->list(prefix, limit, limits);
  }
  result<std::size_t> revoke(std::string_view name, const call& limits) override {
    return inner_->revoke(name, limits);
  }
  result<counter> count(const counter_request& ask, const call& limits) override {
    return inner_->count(ask, limits);
  }
  result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                     const call& limits) override {
    return inner_->watch(kind, name, seen, limits);
  }
  bool contended(const grant& held) const noexcept override { return inner_->contended(held); }

  result<std::vector<grant>> enter_all(std::span<const request> asks, const call& limits) override {
    if (plan_->hang_enters) {
      hang(limits);
      return unknown();
    }
    auto answer = inner_->enter_all(asks, limits);
    std::this_thread::sleep_for(plan_->delay_enter_all_answers.load());
    return answer;
  }

  // Never the plain verbs: they may block, and the thread may be the one that would have to answer.
  void start_enter(const request& ask, const call& limits,
                   completion<entered>& done) noexcept override {
    const auto number = ++plan_->enters;
    if (take_one(plan_->refuse_enters)) return done.complete(refused());
    if (take_one(plan_->lose_enter_requests)) return done.complete(unknown());
    if (number == plan_->deny_enter_number || take_one(plan_->deny_enters))
      return done.complete(denied());
    if (take_one(plan_->garble_enters))
      return inner_->start_enter(ask, limits, *new swallowed<entered>{done, garbled()});
    if (!take_one(plan_->drop_enter_replies)) return inner_->start_enter(ask, limits, done);
    inner_->start_enter(ask, limits, *new swallowed<entered>{done});
  }
  void start_leave(const ticket& place, const call& limits,
                   completion<void>& done) noexcept override {
    if (take_one(plan_->fail_leaves)) return done.complete(refused());
    inner_->start_leave(place, limits, done);
  }
  void start_release(const grant& held, const call& limits,
                     completion<void>& done) noexcept override {
    ++plan_->releases;
    if (!take_one(plan_->drop_release_replies)) return inner_->start_release(held, limits, done);
    inner_->start_release(held, limits, *new swallowed<void>{done});
  }
  void start_settle(const request& ask, const call& limits,
                    completion<entered>& done) noexcept override {
    ++plan_->settles;
    if (take_one(plan_->fail_settles)) return done.complete(refused());
    inner_->start_settle(ask, limits, done);
  }
  void start_count(const counter_request& ask, const call& limits,
                   completion<counter>& done) noexcept override {
    inner_->start_count(ask, limits, done);
  }
  void start_enter_all(std::span<const request> asks, const call& limits,
                       completion<std::vector<grant>>& done) noexcept override {
    inner_->start_enter_all(asks, limits, done);
  }
  // Else it calls renew above: its thread is core's own.
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override {
    if (!take_one(plan_->hang_renewals)) return engine::start_renew(batch, limits, done);
    ++plan_->renewals;
    const std::lock_guard lock{plan_->guard};
    hanging_.push_back(&done);
  }
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override {
    if (take_one(plan_->nudge_awaits)) return done.complete(progress{});
    inner_->start_await(place, limits, done);
  }
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override {
    inner_->start_watch(kind, name, seen, limits, done);
  }

 private:
  session_proof prove() const {
    if (plan_->session == nanoseconds::zero()) return {};
    return {plan_->session_number, clock_.now()};
  }
  void tell_loss(const owner_id& owner) { listener_->on_lost({&owner, 1}, "the test says so"); }

  std::vector<completion<session_proof>*> hanging_;  // under the plan's guard
  std::unique_ptr<loss_filter> listener_;
  std::unique_ptr<engine> inner_;
  std::shared_ptr<faults> plan_;
  const clock& clock_;
  capabilities caps_;
};

}  // namespace

client open_flaky(std::string_view url, std::shared_ptr<faults> plan, client_options options) {
  const auto make = [plan](const engine_config& config) -> result<std::unique_ptr<engine>> {
    const auto rows = engines::table();
    const auto row = std::ranges::find(rows, config.url.scheme(), &engines::engine_entry::scheme);
    if (row == rows.end()) return error{errc::unsupported, "There is no such engine."};
    auto listener = std::make_unique<loss_filter>(config.listener, plan);
    plan->lose_session = [to = listener.get()](std::uint64_t number, std::string_view why) {
      to->on_session_lost(number, why);
    };
    auto inner =
        row->make({config.url, config.client, config.clock, *listener, config.host, config.pid});
    if (!inner) return std::move(inner).error();
    return std::unique_ptr<engine>{
        std::make_unique<flaky_engine>(std::move(listener), std::move(*inner), plan, config.clock)};
  };
  return client::try_open_with(make, url, std::move(options)).value();
}

}  // namespace holdfast::testing
