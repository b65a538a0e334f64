// The verbs over the reference model: take the guard, ask the store, translate. What a verb means
// is in store.cpp, how waiting works in waits.cpp and session_thread.cpp.
#include "engines/memory/engine.hpp"

#include "engines/memory/session_thread.hpp"
#include "support/fork.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::memory {

namespace {

capabilities describe() {
  capabilities caps;
  caps.engine = "memory";
  caps.fifo = caps.priorities = caps.shared = caps.upgrade = caps.permits = true;
  caps.counters = caps.observe = caps.listing = caps.immediate = true;
  caps.wakeup = wakeup_kind::push;
  caps.clock = expiry_clock::local_steady;
  caps.token = token_origin::counter;
  caps.fencing = fencing_strength::strict;
  caps.min_ttl = std::chrono::milliseconds{1};
  caps.max_ttl = std::chrono::hours{24 * 365};
  caps.exclusion =
      "Within this process only, without conditions: holders and store read the same clock.";
  caps.token_scope = "Strictly rising over all names for the life of the process.";
  caps.limits = "For tests and for one process; nothing is kept when the last client is closed.";
  return caps;
}

class memory_engine final : public engine {
 public:
  memory_engine(std::shared_ptr<store> in, const engine_config& config)
      : store_(std::move(in)),
        clock_(config.clock.local()),
        session_thread_(std::make_shared<session_thread>(store_, config)) {}

  ~memory_engine() override {
    if (support::fork_generation() == forks_) {
      session_thread_->end();
      return;
    }
    // A forked child has neither the session thread nor a guard it can trust; what is there is the parent's.
    static_cast<void>(new std::shared_ptr<session_thread>{session_thread_});
  }

  const capabilities& caps() const noexcept override {
    static const auto& the = *new capabilities{describe()};
    return the;
  }

  result<entered> enter(const request& ask, const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->enter(ask, *session_thread_, clock_.now());
  }

  result<progress> await(const ticket& place, const call& limits) override {
    ticket_moved moved{*store_, place};
    block_until(moved, *store_, clock_, limits);
    return moved.outcome;
  }

  result<void> leave(const ticket& place, const call&) override {
    const std::lock_guard guard{store_->guard()};
    store_->leave(place.name, place.owner, clock_.now());
    return {};
  }

  result<session_proof> renew(std::span<renewal> batch, const call&) override {
    const std::lock_guard guard{store_->guard()};
    const auto now = clock_.now();
    for (auto& lease : batch) {
      const bool held = store_->renew(*lease.held, now);
      lease.answer = held ? renewal::verdict::held : renewal::verdict::lost;
      lease.valid_from = now;
    }
    return session_proof{};
  }

  result<void> release(const grant& held, const call&) override {
    const std::lock_guard guard{store_->guard()};
    if (store_->release(held.name, held.owner, clock_.now())) return {};
    return error{errc::not_held,
                 fmt::format("The lock {} was not held by {} (any more); nothing was changed.",
                             support::quoted(held.name), to_string(held.owner))};
  }

  result<grant> downgrade(const grant& held, lock_mode to, const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->downgrade(held, to, clock_.now());
  }

  result<entered> settle(const request& ask, const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->settle(ask.name, ask.owner, clock_.now());
  }

  result<lock_info> inspect(std::string_view name, const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->inspect(name, clock_.now());
  }

  result<std::vector<lock_info>> list(std::string_view prefix, std::size_t limit,
                                      const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->list(prefix, limit, clock_.now());
  }

  result<std::size_t> revoke(std::string_view name, const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->revoke(name, clock_.now());
  }

  result<counter> count(const counter_request& ask, const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->count(ask, clock_.now());
  }

  result<std::vector<counter_info>> list_counters(std::string_view prefix, std::size_t limit,
                                                  const call&) override {
    const std::lock_guard guard{store_->guard()};
    return store_->list_counters(prefix, limit, clock_.now());
  }

  result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                     const call& limits) override {
    version_changed changed{*store_, kind, name, seen};
    block_until(changed, *store_, clock_, limits);
    return {};
  }

  bool contended(const grant& held) const noexcept override {
    const std::lock_guard guard{store_->guard()};
    return store_->contended(held.name);
  }

  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override {
    auto moved = std::make_unique<ticket_moved>(*store_, place);
    auto& outcome = moved->outcome;  // lives until `finish` has been called
    session_thread_->start(std::move(moved), limits, [&done, &outcome] { done.complete(outcome); });
  }

  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override {
    session_thread_->start(std::make_unique<version_changed>(*store_, kind, name, seen), limits,
                           [&done] { done.complete({}); });
  }

 private:
  const std::uint64_t forks_ = support::fork_generation();
  const std::shared_ptr<store> store_;
  const class clock& clock_;
  const std::shared_ptr<session_thread> session_thread_;
};

}  // namespace

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  const auto& url = config.url;
  if (auto ok = url.allow_only({}); !ok) return std::move(ok).error();
  if (!url.endpoints().empty()) {
    return error{errc::misconfigured,
                 fmt::format("The store address {} names a host, but memory: is inside this "
                             "process; write memory: or memory:NAME.",
                             url.str())};
  }
  auto in = url.path().empty() ? std::make_shared<store>() : shared_store(url.path());
  return std::unique_ptr<engine>{std::make_unique<memory_engine>(std::move(in), config)};
}

}  // namespace holdfast::engines::memory
