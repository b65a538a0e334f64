#include <holdfast/election.hpp>

#include "core/async_acquire.hpp"

#include <fmt/format.h>

namespace holdfast {

namespace {

std::optional<leader_info> leader_of(const lock_info& seat) {
  for (const auto& holder : seat.holders)
    if (holder.mode == lock_mode::exclusive)
      return leader_info{holder.label, holder.token, holder.owner, holder.host, holder.pid};
  return std::nullopt;
}

}  // namespace

election::election(const client& store, std::string name, std::string value)
    : store_(store),
      value_(std::move(value)),
      seat_(store, std::move(name), {.own_token = true, .label = value_}) {}

// Every term has a token of its own, also between candidates that share a client.
result<lease> election::campaign(acquire_options options) {
  options.label = value_;
  options.own_token = true;
  return seat_.acquire(options);
}

async<lease> election::async_campaign(const acquire_options& asked) {
  auto options = asked;
  options.label = value_;
  options.own_token = true;
  return seat_.async_acquire(std::as_const(options));
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
    if ((now ? now->term : fencing_token{}) != seen) return now;
    if (stop.stop_requested() || core.clock().now() >= deadline)
      return error{stop.stop_requested() ? errc::cancelled : errc::timed_out,
                   fmt::format("the leader of '{}' did not change in the time given", name())};
    auto told = core.store().watch(watch_kind::lock, name(), seat->version, {deadline, stop});
    if (!told) return std::move(told).error();
  }
}

}  // namespace holdfast
