#include "engines/redis/cluster.hpp"

#include "engines/redis/engine.hpp"
#include "support/parker.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr int most_redirections = 5;

error closing() { return not_done{errc::unavailable, "The client is being closed."}; }

}  // namespace

// ---- opening and closing

cluster::cluster(const settings& how, const engine_config& config)
    : how_(how), url_(config.url), config_{url_,         config.client,
                                           config.clock, config.listener,
                                           config.host,  config.pid} {
  shard_of_slot_.fill(no_shard);
}

result<std::unique_ptr<engine>> cluster::open(const settings& how, const engine_config& config) {
  std::unique_ptr<cluster> self{new cluster{how, config}};
  auto started = net::reactor::start();
  if (!started) return std::move(started).error();
  self->reactor_ = std::move(*started);
  self->peers_ = std::make_unique<peers>(*self->reactor_);
  for (const auto& seed : how.seeds) self->peers_->add(seed);
  if (auto learnt = self->learn_first(); !learnt) return std::move(learnt).error();
  const auto parts = self->all_parts();
  if (parts.empty())
    return self->opening_failure_.value_or(
        error{errc::unavailable, fmt::format("{}: no node of the cluster has any slot.", how.url)});
  self->caps_ = parts.front()->caps();
  return std::unique_ptr<engine>{std::move(self)};
}

// First what asks for the map, because that goes on with the shards; then the shards, which complete what is under way.
cluster::~cluster() {
  ending_ = true;
  if (!reactor_ || getpid() != process_) return;
  support::parker told;
  reactor_->post([this, &told] {
    *is_open_ = false;
    peers_.reset();
    told.set(1);
  });
  told.wait(steady_time::max());
  for (auto& each : shards_) each->verbs.reset();
}

// ---- names and shards

unsigned cluster::slot_of_name(std::string_view name) const {
  if (how_.layout == "native") return slot_of_tag(tag_of(name));
  return slot_of(how_.prefix + std::string{name});
}

cluster_part* cluster::part_of(std::string_view name) const {
  const auto slot = slot_of_name(name);
  const std::lock_guard lock{guard_};
  const auto which = shard_of_slot_[slot];
  return which == no_shard ? nullptr : shards_[which]->verbs.get();
}

std::vector<cluster_part*> cluster::all_parts() const {
  const std::lock_guard lock{guard_};
  std::vector<cluster_part*> out;
  for (const auto& each : shards_) out.push_back(each->verbs.get());
  return out;
}

std::vector<cluster_part*> cluster::used_parts() const {
  const std::lock_guard lock{guard_};
  std::vector<cluster_part*> out;
  for (std::size_t i = 0; i < shards_.size(); ++i)
    if (is_used_[i]) out.push_back(shards_[i]->verbs.get());
  return out;
}

error cluster::not_served(std::string_view name, const result<void>& learnt) const {
  return not_done{
      errc::unavailable,
      fmt::format("Lock {} on {}: no node of the cluster has its slot {}{}{}",
                  support::quoted(name), how_.url, slot_of_name(name), learnt ? "." : ". ",
                  learnt ? std::string_view{} : learnt.error().message())};
}

// co_await: until the nodes have been asked for the map once more.
class cluster::refreshing {
 public:
  refreshing(cluster& in, const invocation& how) : in_(in), blocks_(how.blocks) {}
  bool await_ready() {
    if (!blocks_) return false;
    support::parker done;
    begin([this, &done](const result<void>& outcome) {
      outcome_.emplace(outcome);
      done.set(1);
    });
    done.wait(steady_time::max());
    return true;
  }
  void await_suspend(std::coroutine_handle<> caller) {
    begin([this, caller](const result<void>& outcome) {
      outcome_.emplace(outcome);
      caller.resume();
    });
  }
  result<void> await_resume() { return std::move(*outcome_); }

 private:
  void begin(std::function<void(const result<void>&)> then) {
    in_.reactor_->post(
        [&in = in_, then = std::move(then)]() mutable { in.refresh(std::move(then)); });
  }
  cluster& in_;
  const bool blocks_;
  std::optional<result<void>> outcome_{};
};

template <class T>
operation<T> cluster::routed(std::string_view name, const verb_of<T>& verb, invocation how) {
  for (int tries = 0;; ++tries) {
    const auto before = redirections_.load();
    auto* at = part_of(name);
    if (at == nullptr) {
      refreshing again{*this, how};
      const auto learnt = co_await again;
      at = part_of(name);
      if (at == nullptr || ending_) co_return not_served(name, learnt);
    }
    auto got = co_await verb(*at);
    // An owner that was taken back is not asked for again: what ended it may be said once more, to the next master.
    const bool is_elsewhere = !got && got.error().is_not_done() && !got.error().is_owner_over() &&
                              got.error().code() == errc::unavailable &&
                              redirections_.load() != before;
    const bool is_late =
        how.limits.stop.stop_requested() || std::chrono::steady_clock::now() >= how.limits.deadline;
    if (!is_elsewhere || tries == most_redirections || is_late || ending_) co_return std::move(got);
    refreshing again{*this, how};
    static_cast<void>(co_await again);
    if (ending_) co_return closing();
  }
}

// ---- the verbs

operation<entered> cluster::do_enter(const request& ask, invocation how) {
  const verb_of<entered> verb = [&ask, how](cluster_part& at) { return at.do_enter(ask, how); };
  co_return co_await routed(ask.name, verb, how);
}

operation<void> cluster::do_leave(const ticket& place, invocation how) {
  const verb_of<void> verb = [&place, how](cluster_part& at) { return at.do_leave(place, how); };
  co_return co_await routed(place.name, verb, how);
}

operation<void> cluster::do_release(const grant& held, invocation how) {
  const verb_of<void> verb = [&held, how](cluster_part& at) { return at.do_release(held, how); };
  co_return co_await routed(held.name, verb, how);
}

operation<entered> cluster::do_settle(const request& ask, invocation how) {
  const verb_of<entered> verb = [&ask, how](cluster_part& at) { return at.do_settle(ask, how); };
  co_return co_await routed(ask.name, verb, how);
}

operation<grant> cluster::do_downgrade(const grant& held, lock_mode to, invocation how) {
  const verb_of<grant> verb = [&held, to, how](cluster_part& at) {
    return at.do_downgrade(held, to, how);
  };
  co_return co_await routed(held.name, verb, how);
}

// In one script only where all names have one tag; else core takes them one after the other, in order.
operation<std::vector<grant>> cluster::do_enter_all(std::span<const request> asks, invocation how) {
  const auto tag = tag_of(asks.front().name);
  for (const auto& ask : asks)
    if (tag_of(ask.name) != tag) co_return std::vector<grant>{};
  const verb_of<std::vector<grant>> verb = [asks, how](cluster_part& at) {
    return at.do_enter_all(asks, how);
  };
  co_return co_await routed(asks.front().name, verb, how);
}

operation<lock_info> cluster::do_inspect(std::string_view name, invocation how) {
  const verb_of<lock_info> verb = [name, how](cluster_part& at) {
    return at.do_inspect(name, how);
  };
  co_return co_await routed(name, verb, how);
}

operation<std::size_t> cluster::do_revoke(std::string_view name, invocation how) {
  const verb_of<std::size_t> verb = [name, how](cluster_part& at) {
    return at.do_revoke(name, how);
  };
  co_return co_await routed(name, verb, how);
}

operation<counter> cluster::do_count(const counter_request& ask, invocation how) {
  const verb_of<counter> verb = [&ask, how](cluster_part& at) { return at.do_count(ask, how); };
  co_return co_await routed(ask.name, verb, how);
}

// One shard after the other. One that cannot be asked hides its locks, so there is no list without it.
operation<std::vector<lock_info>> cluster::do_list(std::string_view prefix, std::size_t limit,
                                                   invocation how) {
  std::vector<lock_info> out;
  for (auto* part : used_parts()) {
    auto some = co_await part->do_list(prefix, limit, how);
    if (!some) co_return std::move(some).error();
    std::ranges::move(*some, std::back_inserter(out));
  }
  std::ranges::sort(out, {}, &lock_info::name);
  if (out.size() > limit) out.resize(limit);
  co_return out;
}

operation<std::vector<counter_info>> cluster::do_list_counters(std::string_view prefix,
                                                               std::size_t limit, invocation how) {
  std::vector<counter_info> out;
  for (auto* part : used_parts()) {
    auto some = co_await part->do_list_counters(prefix, limit, how);
    if (!some) co_return std::move(some).error();
    std::ranges::move(*some, std::back_inserter(out));
  }
  std::ranges::sort(out, {}, &counter_info::name);
  if (out.size() > limit) out.resize(limit);
  co_return out;
}

// ---- renewal

// All shards at the same time. One that stands still must not cost the grants of the others theirs, so each has a
// quarter of the shortest ttl.
class cluster::renewing {
 public:
  renewing(cluster& in, std::span<renewal> batch, const invocation& how)
      : batch_(batch), blocks_(how.blocks) {
    std::map<cluster_part*, std::unique_ptr<part>> by;
    auto shortest = batch.front().held->ttl;
    for (const auto& asked : batch) shortest = std::min(shortest, asked.held->ttl);
    auto limits = how.limits;
    limits.deadline = std::min(
        limits.deadline, std::chrono::steady_clock::now() + std::max(shortest / 4, 50ms + 0ns));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      auto* at = in.part_of(batch[i].held->name);
      if (at == nullptr) in.on_redirected();  // the map is asked for
      if (at == nullptr) continue;
      auto& of = by[at];
      if (!of) of = std::make_unique<part>(*this, *at, limits);
      of->which.push_back(i);
      of->some.push_back(batch[i]);
    }
    for (auto& [at, of] : by) parts_.push_back(std::move(of));
    left_ = parts_.size() + 1;
  }
  bool await_ready() {
    if (!blocks_) return false;
    begin();
    done_.wait(steady_time::max());
    return true;
  }
  void await_suspend(std::coroutine_handle<> caller) {
    caller_ = caller;
    begin();
  }
  // An error only when no shard has answered.
  result<void> await_resume() {
    std::optional<error> why;
    bool any = false;
    for (const auto& of : parts_) {
      if (of->failure) why = of->failure;
      if (of->failure) continue;
      any = true;
      for (std::size_t i = 0; i < of->which.size(); ++i) batch_[of->which[i]] = of->some[i];
    }
    if (any) return {};
    return why.value_or(error{errc::unavailable, "No node of the cluster has these locks."});
  }

 private:
  struct part final : completion<session_proof> {
    part(renewing& all, cluster_part& shard, call until)
        : in(all), at(shard), limits(std::move(until)) {}
    void complete(result<session_proof> outcome) noexcept override {
      if (!outcome) failure = std::move(outcome).error();
      in.step();
    }
    renewing& in;
    cluster_part& at;
    const call limits;
    std::vector<std::size_t> which;
    std::vector<renewal> some;
    std::optional<error> failure;
  };
  // The last step may end us.
  void begin() {
    for (auto& of : parts_) of->at.start_renew(of->some, of->limits, *of);
    step();
  }
  void step() {
    if (left_.fetch_sub(1) != 1) return;
    if (blocks_) return done_.set(1);
    caller_.resume();
  }

  const std::span<renewal> batch_;
  const bool blocks_;
  std::vector<std::unique_ptr<part>> parts_;
  std::atomic<std::size_t> left_{0};
  std::coroutine_handle<> caller_{};
  support::parker done_;
};

operation<session_proof> cluster::do_renew(std::span<renewal> batch, invocation how) {
  if (batch.empty()) co_return session_proof{};
  renewing all{*this, batch, how};
  auto done = co_await all;
  if (!done) co_return std::move(done).error();
  co_return session_proof{};  // there is none: the ttl alone counts
}

// ---- waiting

void cluster::start_await(const ticket& place, const call& limits,
                          completion<progress>& done) noexcept {
  if (auto* at = part_of(place.name)) return at->start_await(place, limits, done);
  done.complete(progress{});
}

// Where it was begun may be another shard than the one that has the name now.
void cluster::end_await(const ticket& place) noexcept {
  for (auto* part : all_parts()) part->end_await(place);
}

void cluster::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                          const call& limits, completion<void>& done) noexcept {
  if (auto* at = part_of(name)) return at->start_watch(kind, name, seen, limits, done);
  done.complete(not_served(name, {}));
}

// ---- operators

result<std::vector<finding>> cluster::diagnose(const call& limits) {
  using level = finding::level;
  std::vector<finding> out;
  std::vector<std::pair<std::string, cluster_part*>> parts;
  std::size_t missing = 0, failed = 0;
  {
    const std::lock_guard lock{guard_};
    for (std::size_t i = 0; i < shards_.size(); ++i)
      if (is_used_[i])
        parts.emplace_back(fmt::format("{}:{}", shards_[i]->where.host, shards_[i]->where.port),
                           shards_[i]->verbs.get());
    missing = slots_missing_;
    failed = masters_failed_;
  }
  out.push_back(
      {missing == 0 && failed == 0 ? level::good : level::bad, "slots",
       missing == 0
           ? fmt::format("{} masters have all slots{}.", parts.size(),
                         failed == 0 ? "" : fmt::format(", and {} of them have failed", failed))
           : fmt::format("{} slots have no master: their locks cannot be taken.", missing)});
  for (const auto& [where, part] : parts) {
    auto found = part->diagnose(limits);
    if (!found) {
      out.push_back({level::bad, where, found.error().message()});
      continue;
    }
    for (auto& each : *found) {
      each.about = fmt::format("{}: {}", where, each.about);
      out.push_back(std::move(each));
    }
  }
  return out;
}

}  // namespace holdfast::engines::redis
