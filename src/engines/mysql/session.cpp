#include "engines/mysql/session.hpp"

#include "engines/mysql/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace holdfast::engines::mysql {

// ---- connecting

result<void> session::open(const call& limits) {
  const std::lock_guard lock{guard_};
  has_user_locks_ = how_.wait != wait_mode::poll;
  if (!has_user_locks_) why_not_ = "the address says wait=poll";
  if (auto ok = connect(limits); !ok) return ok;
  if (has_user_locks_) {
    auto usable = check_user_locks(limits);
    if (!usable) return std::move(usable).error();
    has_user_locks_ = *usable;
    if (!*usable && how_.wait == wait_mode::push)
      return not_done{errc::misconfigured,
                      fmt::format("{} says wait=push, but {}.", how_.url, why_not_)};
  }
  return {};
}

result<void> session::connect(const call& limits) {
  if (connection_ && !connection_->is_stale()) {
    connection_->begin(limits, {});
    return {};
  }
  if (connection_) {
    last_ = connection_->own_identity();
    late_requests_.add(*connection_);
    connection_.reset();
  }
  auto fresh = connection::open(how_, by_, connection::kind::plain, limits);
  if (!fresh) return std::move(fresh).error();
  if (auto ok = join(std::move(*fresh), limits); !ok) return ok;
  return {};
}

// On a connection that is given up on the way the user lock may be held: the next attempt must know what to end.
result<void> session::join(std::unique_ptr<connection> fresh, const call& limits) {
  auto ok = join_on(*fresh, limits);
  if (!ok) {
    last_ = fresh->own_identity();
    late_requests_.add(*fresh);
    return ok;
  }
  connection_ = std::move(fresh);
  version_ = connection_->version();
  return {};
}

result<void> session::join_on(connection& fresh, const call& limits) {
  fresh.begin(limits, {});
  // A row that another program keeps locked must not keep all others from being renewed within the grace.
  if (auto ok = fresh.define("SET SESSION innodb_lock_wait_timeout=1"); !ok) return ok;
  // First the user lock, then the note that says we are gone: see lock_rows::check_absent_holders.
  if (has_user_locks_)
    if (auto ok = take_user_lock(fresh); !ok) return ok;
  const auto asked = clock_.now();
  auto joined = fresh.run(sql().join_session,
                          {std::string_view{identity_.client}, std::string_view{identity_.host},
                           static_cast<std::uint64_t>(identity_.pid)});
  if (!joined) {
    auto why = std::move(joined).error();
    if (why.code() != errc::outcome_unknown) return why;
    return error{errc::unavailable, why.message()};
  }
  // Others know that we are there, and have taken what they wanted to take. The question that began it is its proof.
  belief_.proven(belief_.current() + 1, asked);
  return {};
}

// Another client may have it for a moment, to see whether it is free; and the connection that had it before may be dead
// without the server knowing.
result<void> session::take_user_lock(connection& on) {
  const auto name = session_lock(identity_.client);
  for (const int attempt : {0, 1}) {
    auto got = on.ask(sql().take_lock, {std::string_view{name}, std::uint64_t{1}});
    if (!got) return std::move(got).error();
    if (got->front().number(0) == 1) return {};
    if (attempt == 0 && last_.id != 0) {
      const auto alive = on.knows(last_);
      if (alive && *alive) on.end(last_.id);
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
  const auto name = session_lock(identity_.client);
  auto owning = (*other)->ask(sql().connection_with_lock, {std::string_view{name}});
  if (!owning) {
    why_not_ = "it does not allow GET_LOCK";
    return false;
  }
  if (owning->front().number(0) == connection_->own_identity().id) return true;
  why_not_ = "a user lock of one connection is not seen by another; is there a proxy in between?";
  return false;
}

result<void> session::revive(const call& limits) {
  const std::lock_guard lock{guard_};
  return connect(limits);
}

result<void> session::try_revive(const call& limits) {
  const std::unique_lock lock{guard_, std::try_to_lock};
  return lock ? connect(limits) : result<void>{};
}

bool session::is_gone() const {
  const std::unique_lock lock{guard_, std::try_to_lock};
  return lock && (!connection_ || connection_->is_stale());
}

void session::close() noexcept {
  const std::lock_guard lock{guard_};
  connection_.reset();
}

// ---- renewal

// A grant of which the store says `since` then is left alone for a grace from there, whatever becomes of the session.
// (A renewal does not touch `since`; it is written over the session's own connection, and proves the session instead.)
grant session::grant_of(const seen_grant& what, const sending& asked) const {
  grant out;
  out.name = what.name;
  out.owner = what.owner;
  out.mode = what.mode;
  out.weight = what.weight;
  out.token = what.token;
  out.valid_from = asked.at + std::min(what.left, what.ttl) - what.ttl;  // a clock may be set back
  out.ttl = what.ttl;
  out.session = {asked.session, std::max(out.valid_from, belief_.proven_at(asked.session))};
  out.handle = what.is_entry ? 1 : 0;
  return out;
}

result<session_proof> session::renew(std::span<renewal> batch, const call& limits,
                                     std::vector<std::uint64_t>& revoked) {
  const std::lock_guard lock{guard_};
  // Others were served before us. What is too late already must not be cut off in the middle: that would cost the
  // session its connection, and all grants their proof.
  if (std::chrono::steady_clock::now() >= limits.deadline || limits.stop.stop_requested())
    return error{errc::unavailable, "The renewal was not sent in time: others were before it."};
  if (auto ok = connect(limits); !ok) return std::move(ok).error();
  const auto asked = now();
  auto there = connection_->ask(sql().is_there, {std::string_view{identity_.client}});
  if (!there) return std::move(there).error();
  belief_.proven(asked.session, asked.at);
  for (const auto& notice : *there) revoked.push_back(notice.number(0));
  // The rows of locks first, then entries, each by name: every client locks rows in this order.
  std::vector<std::size_t> all(batch.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const auto in_entries = [&](std::size_t i) { return is_entry(*batch[i].held); };
  std::ranges::sort(all, {}, [&](std::size_t i) {
    return std::pair{in_entries(i), batch[i].held->name};
  });
  const auto entries = std::ranges::find_if(all, in_entries);
  // What could not be asked about has no verdict, and costs no other grant its answer.
  write_rows(batch, {all.begin(), entries}, limits.deadline);
  write_rows(batch, {entries, all.end()}, limits.deadline);
  return session_proof{asked.session, asked.at};
}

// As many at once as there are; as few sizes of statements as will do. When a row among many cannot be written (another
// program keeps it locked), the others are written one by one. After a failure nothing is begun that could wait for a
// locked row beyond the deadline: cut off in the middle, it would cost the session its connection.
void session::write_rows(std::span<renewal> batch, std::span<const std::size_t> chosen,
                         steady_time deadline) {
  constexpr nanoseconds lock_wait = std::chrono::milliseconds{1200};
  const auto has_time = [&] {
    return !connection_->is_broken() && std::chrono::steady_clock::now() < deadline - lock_wait;
  };
  bool any_failed = false;
  for (std::size_t begin = 0; begin < chosen.size() && !connection_->is_broken();) {
    if (any_failed && !has_time()) return;
    const auto left = chosen.size() - begin;
    std::size_t which = 0;
    while (which + 1 < statements::sizes.size() && left <= statements::sizes[which + 1]) ++which;
    const auto some = chosen.subspan(begin, std::min(statements::sizes[which], left));
    begin += some.size();
    if (write_some(batch, some, which)) continue;
    any_failed = true;
    if (some.size() == 1) continue;
    for (const auto& alone : some)
      if (has_time())
        static_cast<void>(write_some(batch, {&alone, 1}, statements::sizes.size() - 1));
  }
}

// REQUIRES: all are entries, or none is.
result<void> session::write_some(std::span<renewal> batch, std::span<const std::size_t> some,
                                 std::size_t size) {
  const bool entries = is_entry(*batch[some.front()].held);
  std::vector<parameter> with{std::string_view{identity_.client}};
  // The last grant again, where there are too few.
  for (std::size_t i = 0; i < statements::sizes[size]; ++i) {
    const auto& held = *batch[some[std::min(i, some.size() - 1)]].held;
    with.emplace_back(held.name);
    with.emplace_back(held.owner.sequence);
  }
  const auto asked = now();
  auto written = connection_->run((entries ? sql().renew_entries : sql().renew_rows)[size], with);
  if (!written) return std::move(written).error();
  const bool all = written->affected == some.size();
  std::vector<std::uint64_t> alive;
  if (!all) {
    auto found = connection_->ask((entries ? sql().check_entries : sql().check_rows)[size], with);
    if (!found) return std::move(found).error();
    for (const auto& held : *found) alive.push_back(held.number(0));
  }
  for (const auto i : some) {
    auto& about = batch[i];
    const bool held = all || std::ranges::find(alive, about.held->owner.sequence) != alive.end();
    about.answer = held ? renewal::verdict::held : renewal::verdict::lost;
    about.valid_from = asked.at;
    about.session = {asked.session, asked.at};
  }
  return {};
}

}  // namespace holdfast::engines::mysql
