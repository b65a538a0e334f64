#include <holdfast/election.hpp>

#include "core/async_acquire.hpp"

#include <fmt/format.h>

namespace holdfast {

namespace {

// Every term has a token of its own, also between candidates that share a client.
acquire_options for_candidate(acquire_options options, const std::string& value) {
  options.own_token = true;
  options.label = value;
  options.label_is_value = true;
  return options;
}

std::optional<leader_info> leader_of(const lock_info& seat) {
  for (const auto& holder : seat.holders)
    if (holder.mode == lock_mode::exclusive)
      return leader_info{holder.label, holder.token, holder.owner, holder.host, holder.pid};
  return std::nullopt;
}

error unchanged(const std::string& name, bool cancelled) {
  return {cancelled ? errc::cancelled : errc::timed_out,
          fmt::format("the leader of '{}' did not change in the time given", name)};
}

fencing_token term_of(const std::optional<leader_info>& leader) {
  return leader ? leader->term : fencing_token{};
}

// look -> changed? -> watch -> look ...
class observe_operation final : public core::async_operation<std::optional<leader_info>>,
                                private completion<lock_info>,
                                private completion<void> {
 public:
  observe_operation(const client& store, std::string name, fencing_token seen, nanoseconds limit,
                    std::stop_token users)
      : async_operation(store.core()),
        name_(std::move(name)),
        seen_(seen),
        limit_(limit),
        users_(std::move(users)) {}

 private:
  void begin() override {
    cancel_with(users_);
    deadline_ = core::deadline_after(core().clock().now(), limit_);
    look();
  }
  void look() {
    limits_ = core().bounded_call();
    core().store().start_inspect(name_, limits_, *this);
  }
  void complete(result<lock_info> seat) noexcept override {
    const core::background_thread mark;
    if (!seat) return finish(std::move(seat).error());
    auto now = leader_of(*seat);
    if (term_of(now) != seen_) return finish(std::move(now));
    if (stop().stop_requested() || core().clock().now() >= deadline_)
      return finish(unchanged(name_, stop().stop_requested()));
    limits_ = {core().on_steady_clock(deadline_), stop()};
    core().store().start_watch(watch_kind::lock, name_, seat->version, limits_, *this);
  }
  void complete(result<void> told) noexcept override {
    const core::background_thread mark;
    if (!told) return finish(std::move(told).error());
    look();
  }

  std::string name_;
  fencing_token seen_;
  nanoseconds limit_;
  std::stop_token users_;
  steady_time deadline_{};
  call limits_;
};

}  // namespace

election::election(const client& store, std::string name, std::string value)
    : store_(store),
      value_(std::move(value)),
      seat_(store, std::move(name), for_candidate({}, value_)) {}

result<lease> election::campaign(acquire_options options) {
  return seat_.acquire(for_candidate(std::move(options), value_));
}

async<lease> election::async_campaign(const acquire_options& asked) {
  const auto options = for_candidate(asked, value_);
  return seat_.async_acquire(options);
}

result<std::optional<leader_info>> election::leader() const {
  auto seat = store_.inspect(name());
  if (!seat) return std::move(seat).error();
  return leader_of(*seat);
}

result<std::optional<leader_info>> election::observe(fencing_token seen, nanoseconds limit,
                                                     std::stop_token stop) const {
  auto& core = *store_.core();
  const auto deadline = core::deadline_after(core.clock().now(), limit);
  for (;;) {
    auto seat = store_.inspect(name());
    if (!seat) return std::move(seat).error();
    auto now = leader_of(*seat);
    if (term_of(now) != seen) return now;
    if (stop.stop_requested() || core.clock().now() >= deadline)
      return unchanged(name(), stop.stop_requested());
    auto told = core.store().watch(watch_kind::lock, name(), seat->version,
                                   {core.on_steady_clock(deadline), stop});
    if (!told) return std::move(told).error();
  }
}

async<std::optional<leader_info>> election::async_observe(fencing_token seen, nanoseconds limit,
                                                          std::stop_token stop) const {
  return async<std::optional<leader_info>>{
      std::make_shared<observe_operation>(store_, name(), seen, limit, std::move(stop))};
}

}  // namespace holdfast
