#include "engines/mysql/session.hpp"

#include "engines/mysql/errors.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

std::int64_t ns(steady_time t) { return nanoseconds{t.time_since_epoch()}.count(); }
steady_time instant(std::int64_t ns) { return steady_time{nanoseconds{ns}}; }

nanoseconds trusted(nanoseconds ttl) { return ttl - ttl / 1'000'000 * std::int64_t{drift_ppm}; }

nanoseconds from_us(std::uint64_t us) {
  return std::chrono::microseconds{static_cast<std::int64_t>(us)};
}

}  // namespace

// ---- connecting

result<void> session::open(const call& limits) {
  const std::lock_guard lock{guard_};
  has_user_locks_ = how_.wait != wait_mode::poll;
  if (!has_user_locks_) why_not_ = "the address says wait=poll";
  auto ok = connect(limits);
  if (!ok || !has_user_locks_) return ok;
  auto usable = check_user_locks(limits);
  if (!usable) return std::move(usable).error();
  if (*usable) return {};
  if (how_.wait == wait_mode::push)
    return error{errc::misconfigured,
                 fmt::format("{} says wait=push, but {}.", how_.url, why_not_)};
  has_user_locks_ = false;
  return {};
}

result<void> session::connect(const call& limits) {
  if (connection_ && !connection_->is_stale()) {
    connection_->begin(limits, {});
    return {};
  }
  if (connection_) {
    last_ = connection_->who();
    if (connection_->is_ghost()) ghosts_.add(last_);
    connection_.reset();
  }
  auto fresh = connection::open(how_, by_, connection::kind::plain, limits);
  if (!fresh) return std::move(fresh).error();
  (*fresh)->begin(limits, {});
  // First the user lock, then the note that says we are gone: see book::look_for_the_dead.
  if (has_user_locks_)
    if (auto ok = take_user_lock(**fresh); !ok) return ok;
  auto joined =
      (*fresh)->run(sql().join_session, {std::string_view{who_.client}, std::string_view{who_.host},
                                         static_cast<std::uint64_t>(who_.pid)});
  if (!joined) {
    auto why = std::move(joined).error();
    if (why.code() != errc::outcome_unknown) return why;
    return error{errc::unavailable, why.message()};
  }
  connection_ = std::move(*fresh);
  version_ = connection_->version();
  look_at_all_ = last_.id != 0;  // not the first: what we knew may be wrong
  return {};
}

// Somebody may have it for a moment, to see whether it is free; and the connection that had it before may be dead
// without the server knowing.
result<void> session::take_user_lock(connection& on) {
  const auto name = session_lock(who_.client);
  for (const int attempt : {0, 1}) {
    auto got = on.ask(sql().take_lock, {std::string_view{name}, std::uint64_t{1}});
    if (!got) return std::move(got).error();
    if (got->front().number(0) == 1) return {};
    if (attempt == 0 && last_.id != 0) {
      auto alive = on.ask(sql().is_known, {last_.id, std::string_view{last_.host}});
      if (alive && alive->front().number(0) != 0) on.end(last_.id);
    }
  }
  return error{errc::unavailable,
               fmt::format("{}: the session of this client is still in use there.", how_.url)};
}

// Is it the server that we talk to, and does what one connection takes bind the others? Not behind a proxy that shares
// connections, and not between the nodes of a Galera cluster.
result<bool> session::check_user_locks(const call& limits) {
  auto other = connection::open(how_, by_, connection::kind::plain, limits);
  if (!other) return std::move(other).error();
  (*other)->begin(limits, {});
  auto galera = (*other)->ask(sql().is_galera, {});
  if (!galera) return std::move(galera).error();
  if (!galera->empty() && galera->front().bytes(1) == "ON") {
    why_not_ = "the server is a node of a Galera cluster, whose user locks are its own";
    return false;
  }
  const auto name = session_lock(who_.client);
  auto whose = (*other)->ask(sql().who_has_lock, {std::string_view{name}});
  if (!whose) {
    why_not_ = "it does not allow GET_LOCK";
    return false;
  }
  if (whose->front().number(0) == connection_->who().id) return true;
  why_not_ = "a user lock of one connection is not seen by another; is there a proxy in between?";
  return false;
}

result<void> session::revive(const call& limits) {
  const std::lock_guard lock{guard_};
  return connect(limits);
}

void session::close(const call& limits) noexcept {
  const std::lock_guard lock{guard_};
  if (!connection_ || connection_->is_stale()) return;
  connection_->begin(limits, {});
  static_cast<void>(connection_->run(sql().leave_session, {std::string_view{who_.client}}));
  connection_.reset();
}

// ---- what to believe

void session::rise_presence(steady_time to) noexcept {
  const auto value = ns(to);
  auto now = present_at_.load(std::memory_order_relaxed);
  while (now < value && !present_at_.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
  }
}

nanoseconds session::believed_ttl(nanoseconds ttl) const {
  return attention() > 0ns ? std::min(ttl, attention()) : ttl;
}

// Two ends bound a grant: that of its ttl, and the grace after the last proof of presence or its own beginning. The
// earlier one counts.
steady_time session::believed_from(steady_time from, nanoseconds ttl) const {
  if (attention() == 0ns) return from;
  const auto believed = believed_ttl(ttl);
  const auto by_ttl = believed == ttl ? from + ttl : from + trusted(ttl);
  const auto by_presence =
      std::max(from, instant(present_at_.load(std::memory_order_relaxed))) + attention();
  return std::min(by_ttl, by_presence) - believed;
}

grant session::believed(std::string_view name, const owner_id& owner, lock_mode mode,
                        std::uint64_t weight, fencing_token token, steady_time from,
                        nanoseconds ttl, bool is_entry) const {
  grant out;
  out.name = name;
  out.owner = owner;
  out.mode = mode;
  out.weight = weight;
  out.token = token;
  out.valid_from = believed_from(from, ttl);
  out.ttl = believed_ttl(ttl);
  const auto us = std::chrono::ceil<std::chrono::microseconds>(ttl).count();
  const auto earlier = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(out.valid_from - from, steady_time::duration::zero()));
  out.handle = grant_handle{static_cast<std::uint64_t>(us), is_entry,
                            static_cast<std::uint64_t>(earlier.count())}
                   .packed();
  return out;
}

// ---- renewal

// Core renews every grant within the grace; rows are written for those that have used up a third of their real ttl.
std::vector<std::size_t> session::due_for_renewal(std::span<const renewal> batch, steady_time now) {
  std::vector<std::size_t> due;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& held = *batch[i].held;
    const auto seen = grant_handle::of(held);
    const auto ttl = from_us(seen.ttl);
    auto known = renewed_at_.find(held.owner.sequence);
    if (known == renewed_at_.end() && seen.earlier < grant_handle::not_known) {
      const auto from =
          held.valid_from - std::chrono::milliseconds{static_cast<std::int64_t>(seen.earlier)};
      known = renewed_at_.emplace(held.owner.sequence, from).first;
    }
    if (look_at_all_ || attention() == 0ns || known == renewed_at_.end() ||
        now - known->second >= ttl / 3)
      due.push_back(i);
  }
  // By name: everybody locks rows in this order.
  std::ranges::sort(due, {}, [&](std::size_t i) { return batch[i].held->name; });
  return due;
}

result<void> session::renew(std::span<renewal> batch, const call& limits, bool& has_mail) {
  const std::lock_guard lock{guard_};
  if (auto ok = connect(limits); !ok) return ok;
  const auto sent = clock_.now();
  auto there = connection_->ask(sql().is_there, {std::string_view{who_.client}});
  if (!there) return std::move(there).error();
  rise_presence(sent);
  has_mail = there->front().number(0) != 0;
  const auto due = due_for_renewal(batch, sent);
  for (const bool entries : {false, true})
    if (auto ok = write_rows(batch, due, entries); !ok) return ok;
  look_at_all_ = false;
  for (auto& one : batch) {
    const auto known = renewed_at_.find(one.held->owner.sequence);
    if (one.answer == renewal::verdict::lost || known == renewed_at_.end()) continue;
    one.answer = renewal::verdict::held;
    one.valid_from = believed_from(known->second, from_us(grant_handle::of(*one.held).ttl));
  }
  // What is no longer renewed is no longer held.
  if (renewed_at_.size() > 2 * batch.size() + 64)
    std::erase_if(renewed_at_, [&](const auto& known) {
      return sent - known.second > 1min && std::ranges::none_of(batch, [&](const renewal& one) {
               return one.held->owner.sequence == known.first;
             });
    });
  return {};
}

// As many at once as there are; as few sizes of statements as will do.
result<void> session::write_rows(std::span<renewal> batch, const std::vector<std::size_t>& due,
                                 bool entries) {
  std::vector<std::size_t> those;
  for (const auto i : due)
    if (grant_handle::of(*batch[i].held).is_entry == entries) those.push_back(i);
  const auto& renews = entries ? sql().renew_entries : sql().renew_rows;
  const auto& checks = entries ? sql().check_entries : sql().check_rows;
  for (std::size_t begin = 0; begin < those.size();) {
    const auto left = those.size() - begin;
    std::size_t which = 0;
    while (which + 1 < statements::sizes.size() && left <= statements::sizes[which + 1]) ++which;
    const auto size = statements::sizes[which];
    const auto count = std::min(size, left);
    std::vector<parameter> with{std::string_view{who_.client}};
    for (std::size_t i = 0; i < size; ++i) {  // the last one again, where there are too few
      const auto& held = *batch[those[begin + std::min(i, count - 1)]].held;
      with.emplace_back(held.name);
      with.emplace_back(held.owner.sequence);
    }
    const auto sent = clock_.now();
    auto written = connection_->run(renews[which], with);
    if (!written) return std::move(written).error();
    std::vector<std::uint64_t> alive;
    if (written->affected != count) {
      auto found = connection_->ask(checks[which], with);
      if (!found) return std::move(found).error();
      for (const auto& one : *found) alive.push_back(one.number(0));
    }
    for (std::size_t i = begin; i < begin + count; ++i) {
      auto& one = batch[those[i]];
      const auto seq = one.held->owner.sequence;
      const bool is_held =
          written->affected == count || std::ranges::find(alive, seq) != alive.end();
      if (is_held) {
        renewed_at_[seq] = sent;
      } else {
        renewed_at_.erase(seq);
        one.answer = renewal::verdict::lost;
      }
    }
    begin += count;
  }
  return {};
}

}  // namespace holdfast::engines::mysql
