#include <holdfast/lock_all.hpp>

#include "core/async_acquire.hpp"
#include "core/blocking.hpp"
#include "core/gate.hpp"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <tuple>

namespace holdfast {

namespace {

// One lock that is to be taken.
struct step {
  std::shared_ptr<core::client_core> core;
  std::string name;
  acquire_options options;
  std::size_t place = 0;  // in the answer
};

// In the order in which they are taken. Every program takes several locks in this order, so no circle of waiters can
// close.
struct plan {
  std::vector<step> order;
  nanoseconds wait{};
  steady_time deadline;
  const class clock* clock = nullptr;
};

result<step> make_step(const std::shared_ptr<core::client_core>& core, const std::string& name,
                       const acquire_options& asked) {
  if (auto ok = check_name(name); !ok) return std::move(ok).error();
  auto options = core->checked(asked);
  if (!options) return std::move(options).error();
  return step{core, name, std::move(*options), 0};
}

plan started(std::vector<step> order) {
  plan out{std::move(order), {}, steady_time::max(), nullptr};
  if (out.order.empty()) return out;
  const auto& first = out.order.front();
  out.wait = first.options.wait;
  out.clock = &first.core->clock();
  out.deadline = core::deadline_after(out.clock->now(), out.wait);
  return out;
}

// Of one store: sorted, each name once.
result<plan> make_plan(const std::shared_ptr<core::client_core>& core,
                       std::span<const std::string> names, const acquire_options& asked) {
  std::vector<step> order;
  for (const auto& name : names) {
    auto one = make_step(core, name, asked);
    if (!one) return std::move(one).error();
    order.push_back(std::move(*one));
  }
  std::ranges::sort(order, {}, &step::name);
  const auto is_same = [](const step& a, const step& b) { return a.name == b.name; };
  order.erase(std::unique(order.begin(), order.end(), is_same), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) order[i].place = i;
  return started(std::move(order));
}

result<plan> make_plan(std::span<const lock_place> places, const acquire_options& asked) {
  std::vector<step> order;
  for (const auto& at : places) {
    if (!at.store.core()->usable_here()) return at.store.core()->forked_error();
    auto one = make_step(at.store.core(), at.name, asked);
    if (!one) return std::move(one).error();
    one->place = order.size();
    order.push_back(std::move(*one));
  }
  std::ranges::sort(order, [](const step& a, const step& b) {
    return std::tie(a.name, a.core->url(), a.core) < std::tie(b.name, b.core->url(), b.core);
  });
  const auto again = std::ranges::adjacent_find(
      order, [](const step& a, const step& b) { return a.name == b.name && a.core == b.core; });
  if (again != order.end())
    return error{errc::misconfigured, "lock_all names lock '" + again->name + "' on " +
                                          again->core->url() + " twice; it would wait for itself"};
  return started(std::move(order));
}

// The wait bounds the whole, so the next one gets what is left. False: nothing is.
bool spend(const plan& todo, step& next) {
  if (todo.wait == nanoseconds::zero() || todo.deadline == steady_time::max()) return true;
  next.options.wait = todo.deadline - todo.clock->now();
  return next.options.wait > nanoseconds::zero();
}

// Releases that were begun, and how many of them are not answered yet.
class open_releases {
 public:
  explicit open_releases(std::size_t count) : left_(count) {}
  void one_ended() {
    const std::lock_guard lock{guard_};
    if (--left_ == 0) all_ended_.notify_all();
  }
  void wait_until(steady_time deadline) {
    std::unique_lock lock{guard_};
    all_ended_.wait_until(lock, deadline, [this] { return left_ == 0; });
  }

 private:
  std::mutex guard_;
  std::condition_variable all_ended_;
  std::size_t left_;
};

// All or none: a caller that hears that we have none finds none held, if the stores answer in time; else the releases
// have been sent. All at the same time: a store that does not answer must not keep the locks of the others. No
// coroutine: the thread on which those of a client go on may be the one that waits here.
void give_back(std::vector<lease> held, const plan& todo) {
  if (held.empty()) return;
  nanoseconds longest{};
  for (const auto& one : todo.order)
    longest = std::max(longest, core::overtime(one.core->options().call_timeout));
  const auto all = std::make_shared<open_releases>(held.size());
  for (auto& taken : held) {
    const auto state = core::lease_access::state(taken);
    static_cast<void>(state->release(core::lease_access::take(taken),
                                     core::hold::confirmation::not_awaited,
                                     [all] { all->one_ended(); }));
  }
  all->wait_until(std::chrono::steady_clock::now() + longest);
}

// In the order of the answer.
std::vector<lease> in_their_places(std::vector<lease> held, const plan& todo) {
  std::vector<std::size_t> taken_at(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) taken_at[todo.order[i].place] = i;
  std::vector<lease> out;
  out.reserve(held.size());
  for (const auto at : taken_at) out.push_back(std::move(held[at]));
  return out;
}

// The first may have been lost while we waited for the last.
std::optional<error> loss_among(const std::vector<lease>& held) {
  for (const auto& taken : held)
    if (!taken.valid())
      return error{errc::lost,
                   "lock '" + taken.name() + "' was lost while the others were being acquired"};
  return std::nullopt;
}

// Ends the wait for the next one: the caller's stop, and the loss of one that we have.
class interruption {
 public:
  explicit interruption(const std::stop_token& users) { watch(users); }
  void watch(const std::stop_token& reason) { reasons_.emplace_back(reason, forward{&ended_}); }
  std::stop_token token() const { return ended_.get_token(); }

 private:
  struct forward {
    std::stop_source* to;
    void operator()() const noexcept { to->request_stop(); }
  };
  std::stop_source ended_;
  std::list<std::stop_callback<forward>> reasons_;  // goes first
};

result<std::vector<lease>> all_still_held(std::vector<lease> held) {
  if (auto lost = loss_among(held)) return std::move(*lost);  // what is in `held` is released
  return held;
}

// One atomic attempt at all of them, where the store can. All their gates are ours first, so no other thread of this
// process comes between. An empty answer: another owner has one of them; take them in order then.
class all_at_once {
 public:
  // REQUIRES: all are of one store.
  explicit all_at_once(plan todo)
      : core_(todo.order.empty() ? nullptr : todo.order.front().core), todo_(std::move(todo)) {}
  ~all_at_once() { give_up(); }  // also when memory runs out in between

  bool begin() {
    if (todo_.order.size() < 2 || !core_->caps().atomic_multi) return false;
    for (const auto& one : todo_.order) {
      auto gate = core_->gate_for(one.name);
      std::uint64_t generation = 0;
      if (gate->begin(generation, nullptr) != core::gate::begun::lead) {
        give_up();
        return false;
      }
      asks_.push_back(gate->make_request(one.options));
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
        gate->won((*answer)[i], todo_.order[i].options, since);
        out.push_back(core::lease_access::make(gate, {generation, (*answer)[i].token}));
      }
      taken_.clear();
      return all_still_held(std::move(out));
    }
    give_up();
    if (answer || answer.error().code() == errc::unavailable) return out;
    if (!answer.error().is_not_done())
      for (std::size_t i = 0; i < asks_.size(); ++i)  // the names in asks_ went with their gates
        core_->clear_up(todo_.order[i].name, asks_[i].owner, asks_[i].mode);
    // What may have happened is being cleared up, as after any wait that was cancelled.
    if (todo_.order.front().options.stop.stop_requested())
      return core_->note_failure(core::gave_up(todo_.order.front().name, true));
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
      : async_operation(core), attempt_(todo) {}

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

task<result<std::vector<lease>>> take_all(result<plan> todo, bool is_one_store) {
  if (!todo) co_return std::move(todo).error();
  if (is_one_store && todo->order.size() > 1) {
    async<std::vector<lease>> attempt{
        std::make_shared<enter_all_operation>(todo->order.front().core, *todo)};
    auto all = co_await attempt;
    if (!all || !all->empty()) co_return all;
  }
  std::vector<lease> held;  // what is in it when we return is released
  if (todo->order.empty()) co_return held;
  interruption ends{todo->order.front().options.stop};
  for (auto& one : todo->order) {
    if (!spend(*todo, one)) co_return one.core->note_failure(core::gave_up(one.name, false));
    one.options.stop = ends.token();
    auto pending = core::async_exclusive(one.core->gate_for(one.name), one.options);
    auto got = co_await pending;
    if (!got) co_return loss_among(held).value_or(std::move(got).error());
    held.push_back(std::move(*got));
    if (held.size() < todo->order.size()) ends.watch(held.back().lost());
  }
  co_return all_still_held(in_their_places(std::move(held), *todo));
}

result<std::vector<lease>> take_in_order(plan todo) {
  std::vector<lease> held;
  if (todo.order.empty()) return held;
  held.reserve(todo.order.size());
  interruption ends{todo.order.front().options.stop};
  for (auto& one : todo.order) {
    one.options.stop = ends.token();
    const auto gate = one.core->gate_for(one.name);
    const bool in_time = held.empty() || spend(todo, one);
    auto got = in_time
                   ? gate->acquire(one.options)
                   : result<core::tenure>{one.core->note_failure(core::gave_up(one.name, false))};
    if (!got) {
      auto why = loss_among(held).value_or(std::move(got).error());
      give_back(std::move(held), todo);
      return why;
    }
    held.push_back(core::lease_access::make(gate, *got));
    if (held.size() < todo.order.size()) ends.watch(held.back().lost());
  }
  if (auto lost = loss_among(held)) {
    give_back(std::move(held), todo);
    return std::move(*lost);
  }
  return in_their_places(std::move(held), todo);
}

}  // namespace

result<std::vector<lease>> lock_all(const client& store, std::span<const std::string> names,
                                    const acquire_options& asked) {
  const auto& core = store.core();
  if (!core->usable_here()) return core->forked_error();
  auto todo = make_plan(core, names, asked);
  if (!todo) return std::move(todo).error();
  if (all_at_once attempt{*todo}; attempt.begin()) {
    auto& first = todo->order.front();
    const auto since = core->clock().now();
    auto answer = core->store().enter_all(attempt.asks(),
                                          core->call_until(todo->deadline, first.options.stop));
    auto all = attempt.conclude(std::move(answer), since);
    if (!all || !all->empty()) return all;
    if (!spend(*todo, first)) return core->note_failure(core::gave_up(first.name, false));
  }
  return take_in_order(std::move(*todo));
}

result<std::vector<lease>> lock_all(std::span<const lock_place> places,
                                    const acquire_options& asked) {
  auto todo = make_plan(places, asked);
  if (!todo) return std::move(todo).error();
  return take_in_order(std::move(*todo));
}

task<result<std::vector<lease>>> async_lock_all(const client& store,
                                                std::span<const std::string> names,
                                                const acquire_options& options) {
  return take_all(make_plan(store.core(), names, options), true);
}

task<result<std::vector<lease>>> async_lock_all(std::span<const lock_place> places,
                                                const acquire_options& options) {
  return take_all(make_plan(places, options), false);
}

}  // namespace holdfast
