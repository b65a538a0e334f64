#include <holdfast/lock_all.hpp>

#include "core/async_acquire.hpp"
#include "core/blocking.hpp"
#include "core/gate.hpp"

#include <algorithm>

namespace holdfast {

namespace {

struct plan {
  std::vector<std::string> order;
  acquire_options options;
  steady_time deadline;
};

// Sorted, each once: every client takes several names in this order, so no circle of waiters can close.
result<plan> make_plan(core::client_core& core, std::span<const std::string> names,
                       const acquire_options& asked) {
  for (const auto& name : names)
    if (auto ok = check_name(name); !ok) return std::move(ok).error();
  auto options = core.checked(asked);
  if (!options) return std::move(options).error();
  plan out{{names.begin(), names.end()}, std::move(*options), {}};
  std::ranges::sort(out.order);
  out.order.erase(std::unique(out.order.begin(), out.order.end()), out.order.end());
  out.deadline = core::deadline_after(core.clock().now(), out.options.wait);
  return out;
}

// The wait bounds the whole, so the next one gets what is left. False: nothing is.
bool spend(plan& todo, const core::client_core& core) {
  if (todo.options.wait == nanoseconds::zero() || todo.deadline == steady_time::max()) return true;
  todo.options.wait = todo.deadline - core.clock().now();
  return todo.options.wait > nanoseconds::zero();
}

// All or none: a caller that hears that we have none finds none held, if the store answers in time; else the releases
// have been sent.
void give_back(std::vector<lease> held, const plan& todo, const core::client_core& core) {
  const auto last =
      core::deadline_after(todo.deadline, core::overtime(core.options().call_timeout));
  for (auto& taken : held)
    if (core.clock().now() < last) static_cast<void>(taken.release());
}

// The first may have been lost while we waited for the last.
result<std::vector<lease>> all_still_held(std::vector<lease> held) {
  for (const auto& taken : held)
    if (!taken.valid())
      return error{errc::lost,
                   "lock '" + taken.name() + "' was lost while the others were being acquired"};
  return held;
}

// One atomic attempt at all of them, where the store can. All their gates are ours first, so no other thread of this
// process comes between. An empty answer: another owner has one of them; take them in order then.
class all_at_once {
 public:
  all_at_once(std::shared_ptr<core::client_core> core, plan todo)
      : core_(std::move(core)), todo_(std::move(todo)) {}
  ~all_at_once() { give_up(); }  // also when memory runs out in between

  bool begin() {
    if (!core_->caps().atomic_multi || todo_.order.size() < 2) return false;
    for (const auto& name : todo_.order) {
      auto gate = core_->gate_for(name);
      std::uint64_t generation = 0;
      if (gate->begin(generation, nullptr) != core::gate::begun::lead) {
        give_up();
        return false;
      }
      asks_.push_back(gate->make_request(todo_.options));
      taken_.emplace_back(std::move(gate), generation);
    }
    return true;
  }
  std::span<const request> asks() const noexcept { return asks_; }
  steady_time deadline() const noexcept { return todo_.deadline; }

  result<std::vector<lease>> conclude(result<std::vector<grant>> answer, steady_time since) {
    std::vector<lease> out;
    if (answer && !answer->empty()) {
      for (std::size_t i = 0; i < taken_.size(); ++i) {
        const auto& [gate, generation] = taken_[i];
        gate->won((*answer)[i], todo_.options, since);
        out.push_back(core::lease_access::make(gate, {generation, (*answer)[i].token}));
      }
      taken_.clear();
      return all_still_held(std::move(out));
    }
    give_up();
    if (answer || answer.error().code() == errc::unavailable) return out;
    if (!answer.error().is_not_done())
      for (std::size_t i = 0; i < asks_.size(); ++i)  // the names in asks_ went with their gates
        core_->clear_up(todo_.order[i], asks_[i].owner, asks_[i].mode);
    // What may have happened is being cleared up, as after any wait that was cancelled.
    if (todo_.options.stop.stop_requested())
      return core_->note_failure(core::gave_up(todo_.order.front(), true));
    return core_->note_failure(std::move(answer).error());
  }

 private:
  void give_up() noexcept {
    for (const auto& [gate, generation] : taken_) gate->lead_failed(generation);
    taken_.clear();
  }

  std::shared_ptr<core::client_core> core_;
  const plan todo_;  // a copy: an abandoned coroutine does not keep its own
  std::vector<std::pair<std::shared_ptr<core::gate>, std::uint64_t>> taken_;
  std::vector<request> asks_;
};

class enter_all_operation final : public core::async_operation<std::vector<lease>>,
                                  private completion<std::vector<grant>> {
 public:
  enter_all_operation(std::shared_ptr<core::client_core> core, const plan& todo)
      : async_operation(core), attempt_(core, todo) {}

 private:
  void begin() override {
    since_ = core().clock().now();
    if (!attempt_.begin()) return finish(std::vector<lease>{});
    limits_ = core().call_until(attempt_.deadline(), {});
    core().store().start_enter_all(attempt_.asks(), limits_, *this);
  }
  void complete(result<std::vector<grant>> answer) noexcept override {
    const core::background_thread mark;
    finish(attempt_.conclude(std::move(answer), since_));
  }
  all_at_once attempt_;
  call limits_;
  steady_time since_{};
};

task<result<std::vector<lease>>> take_all(std::shared_ptr<core::client_core> core,
                                          result<plan> todo) {
  if (!todo) co_return std::move(todo).error();
  {
    async<std::vector<lease>> attempt{std::make_shared<enter_all_operation>(core, *todo)};
    auto all = co_await attempt;
    if (!all || !all->empty()) co_return all;
  }
  std::vector<lease> held;
  for (const auto& name : todo->order) {
    if (!spend(*todo, *core)) co_return core->note_failure(core::gave_up(name, false));
    auto pending = core::async_exclusive(core->gate_for(name), todo->options);
    auto got = co_await pending;
    if (!got) co_return std::move(got).error();  // what is in `held` is released
    held.push_back(std::move(*got));
  }
  co_return all_still_held(std::move(held));
}

}  // namespace

result<std::vector<lease>> lock_all(const client& store, std::span<const std::string> names,
                                    const acquire_options& asked) {
  const auto& core = store.core();
  if (!core->usable_here()) return core->forked_error();
  auto todo = make_plan(*core, names, asked);
  if (!todo) return std::move(todo).error();
  if (all_at_once attempt{core, *todo}; attempt.begin()) {
    const auto since = core->clock().now();
    auto answer = core->store().enter_all(attempt.asks(),
                                          core->call_until(todo->deadline, todo->options.stop));
    auto all = attempt.conclude(std::move(answer), since);
    if (!all || !all->empty()) return all;
    if (!spend(*todo, *core)) return core->note_failure(core::gave_up(todo->order.front(), false));
  }
  std::vector<lease> held;
  held.reserve(todo->order.size());
  for (const auto& name : todo->order) {
    const auto gate = core->gate_for(name);
    const bool in_time = held.empty() || spend(*todo, *core);
    auto got = in_time ? gate->acquire(todo->options)
                       : result<core::tenure>{core->note_failure(core::gave_up(name, false))};
    if (!got) {
      give_back(std::move(held), *todo, *core);
      return std::move(got).error();
    }
    held.push_back(core::lease_access::make(gate, *got));
  }
  return all_still_held(std::move(held));
}

task<result<std::vector<lease>>> async_lock_all(const client& store,
                                                std::span<const std::string> names,
                                                const acquire_options& options) {
  return take_all(store.core(), make_plan(*store.core(), names, options));
}

}  // namespace holdfast
