#include "engines/consul/sessions.hpp"

#include "engines/consul/attempts.hpp"
#include "engines/consul/errors.hpp"
#include "engines/consul/http_transfer.hpp"
#include "engines/consul/lock_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

std::string in_milliseconds(nanoseconds length) {
  return fmt::format("{}ms", std::chrono::duration_cast<std::chrono::milliseconds>(length).count());
}

question put(std::string path, std::string body = {}, bool repeatable = true) {
  return {question::verb::put, std::move(path), std::move(body), repeatable};
}

constexpr int session_lives = 200, session_absent = 404;

question renewal_of(const std::string& id, question::rank before) {
  auto out = put("/v1/session/renew/" + id);
  out.before = before;
  return out;
}

}  // namespace

sessions::sessions(agent& with, const class clock& time, std::string label, on_end ended,
                   on_further_end further_ended)
    : agent_(with),
      clock_(time),
      label_(std::move(label)),
      ended_(std::move(ended)),
      further_ended_(std::move(further_ended)) {}

std::optional<session_view> sessions::current() const {
  const std::lock_guard lock{guard_};
  return current_;
}

// Without checks of a node's health: those would end a session at once, before its ttl has passed and we know of it.
operation<std::string> sessions::create(invocation how) {
  const auto& with = agent_.how();
  const auto body = fmt::format(
      R"({{"Name":{},"TTL":"{}s","LockDelay":"{}","Behavior":"{}","NodeChecks":[],"Checks":[]}})",
      json_text(label_), with.session.count(), in_milliseconds(with.lock_delay),
      with.keys_are_deleted ? "delete" : "release");
  const auto ask = put("/v1/session/create", body);  // a second one ends by itself
  auto said = co_await agent_.ask(ask, how);
  if (!said.got) co_return std::move(said.got).error();
  if (said.got->status != 200) co_return status_error(*said.got, {}, with.url);
  auto id = read_session_id(said.got->body);
  if (!id) co_return unexpected_answer({}, with.url);
  co_return std::move(*id);
}

// When a session is lost all its waiters come at once.
operation<session_view> sessions::ensure(invocation how) {
  if (auto now = current()) co_return std::move(*now);
  constexpr std::string_view making = "session";
  for (;;) {
    {
      const release_order::only_one maker{making_, making};
      if (auto now = current()) co_return std::move(*now);
      if (maker) co_return co_await make(how);
    }
    if (!may_go_on(how.limits)) co_return no_time_to_ask(agent_.how());
    co_await making_.after_releases(agent_, making, how);
  }
}

operation<session_view> sessions::make(invocation how) {
  session_view out;
  out.proven = clock_.now();
  auto made = co_await create(how);
  if (!made) co_return std::move(made).error();
  out.id = std::move(*made);
  out.epoch_key = epoch_key(agent_.how().root, out.id);
  transaction mark;
  mark.lock(out.epoch_key, out.id, "0");
  const auto left = take_left_keys();
  for (const auto& key : left) mark.erase(key);
  const auto ask = put("/v1/txn", mark.body());
  auto said = co_await agent_.ask(ask, how);
  auto in = read_txn_reply(std::move(said), mark, {}, agent_.how().url);
  if (in && !in->done()) in = failed_txn(*in, {}, agent_.how().url);
  if (!in) {
    {
      const std::lock_guard lock{guard_};
      left_keys_.insert(left_keys_.end(), left.begin(), left.end());
      if (!agent_.how().keys_are_deleted && !in.error().is_not_done())
        left_keys_.push_back(out.epoch_key);
    }
    // Else it would live on for twice its ttl. That must be asked also when the caller's own time is up.
    bool is_destroyed = false;
    if (may_go_on(how.limits)) {
      auto gone = co_await destroy(out.id, how);
      is_destroyed = gone.has_value();
    }
    if (!is_destroyed) destroy_in_background({out.id});
    co_return std::move(in).error();
  }
  out.epoch = in->index_of(out.epoch_key);
  const std::lock_guard lock{guard_};
  out.number = ++last_number_;
  current_ = out;
  co_return out;
}

// The main one alone is waited for: with hundreds of permits the others would take longer than a renewal may.
operation<session_view> sessions::renew(invocation how) {
  auto now = current();
  if (!now) co_return co_await ensure(how);
  destroy_in_background(take_unused());
  const auto sent = clock_.now();
  const auto ask = renewal_of(now->id, question::rank::main_proof);
  auto said = co_await agent_.ask(ask, how);
  if (!said.got) co_return as_reading(std::move(said.got).error());
  if (said.got->status == session_absent) {
    is_gone(now->id, "the session has ended in the store");
  } else if (said.got->status != session_lives) {
    co_return status_error(*said.got, {}, agent_.how().url);
  }
  renew_further();
  {
    const std::lock_guard lock{guard_};
    if (current_ && current_->id == now->id) {
      current_->proven = std::max(current_->proven, sent);
      co_return session_view{*current_};
    }
  }
  co_return co_await ensure(how);
}

// All at once: the agent's thread sends a bounded number at a time. One that has not been answered yet is not asked
// about again; before the next heartbeat it is given up, so that it is asked about at least twice in time.
void sessions::renew_further() {
  std::vector<further> due;
  {
    const std::lock_guard lock{guard_};
    for (auto& one : further_)
      if (!std::exchange(one.is_asked, true)) due.push_back(one);
  }
  // A slow agent may not get to all of them in time.
  std::ranges::sort(due, {}, &further::proven);
  const auto sent = clock_.now();
  for (const auto& one : due)
    agent_.ask_in_background(
        renewal_of(one.id, question::rank::proof), agent_.how().session / 4,
        [this, id = one.id, sent](const answer& said) { note_renewal(id, sent, said); });
}

void sessions::note_renewal(const std::string& id, steady_time sent, const answer& said) {
  {
    const std::lock_guard lock{guard_};
    const auto at = std::ranges::find(further_, id, &further::id);
    if (at == further_.end()) return;
    at->is_asked = false;
    if (said.got && said.got->status == session_lives) at->proven = std::max(at->proven, sent);
  }
  if (said.got && said.got->status == session_absent)
    is_gone(id, "the session has ended in the store");
}

// Consul keeps them for as long again. What the main session proves says nothing about them.
void sessions::end_unproven() {
  std::vector<std::string> over;
  {
    const std::lock_guard lock{guard_};
    const auto last = clock_.now() - agent_.how().session;
    for (const auto& one : further_)
      if (one.proven < last) over.push_back(one.id);
  }
  for (const auto& id : over) is_gone(id, "the session could not be renewed");
  destroy_in_background(over);
}

void sessions::is_gone(const std::string& id, std::string_view why) {
  std::optional<session_view> gone;
  std::vector<std::string> along;
  {
    const std::lock_guard lock{guard_};
    if (current_ && current_->id == id) gone = std::exchange(current_, std::nullopt);
    // With behavior=release its keys stay.
    if (gone && !agent_.how().keys_are_deleted) left_keys_.push_back(gone->epoch_key);
    if (!gone && std::erase_if(further_, [&](const auto& one) { return one.id == id; }) == 0)
      return;
    std::erase_if(used_, [&](const auto& use) { return use.second == id; });
    // What else its owners had ends as well: their keys are gone.
    if (gone) {
      for (const auto& one : std::exchange(further_, {})) along.push_back(one.id);
      used_.clear();
    }
  }
  destroy_in_background(along);
  if (gone) return ended_(*gone, why);
  further_ended_(id);
}

void sessions::note_epoch(const std::string& id, std::uint64_t index) {
  const std::lock_guard lock{guard_};
  if (current_ && current_->id == id) current_->epoch = std::max(current_->epoch, index);
}

std::vector<std::string> sessions::take_left_keys() {
  const std::lock_guard lock{guard_};
  const auto count = std::min(left_keys_.size(), transaction::most_operations - 1);
  const auto from = left_keys_.end() - static_cast<std::ptrdiff_t>(count);
  std::vector<std::string> out{from, left_keys_.end()};
  left_keys_.erase(from, left_keys_.end());
  return out;
}

// ---- permits

// REQUIRES: guard_ is held.
bool sessions::take_free(std::string_view name, std::size_t count, std::vector<std::string>& out) {
  out.clear();
  if (!current_) return false;
  const auto uses = used_.equal_range(name);
  const auto is_used = [&](const std::string& id) {
    return std::any_of(uses.first, uses.second, [&](const auto& use) { return use.second == id; });
  };
  if (!is_used(current_->id)) out.push_back(current_->id);
  for (const auto& one : further_)
    if (out.size() < count && !is_used(one.id)) out.push_back(one.id);
  if (out.size() < count) return false;
  for (const auto& id : out) used_.emplace(name, id);
  return true;
}

bool sessions::has_free(std::string_view name, std::size_t count) const {
  const std::lock_guard lock{guard_};
  if (!current_) return count <= 1;
  const auto [first, last] = used_.equal_range(name);
  const auto used = static_cast<std::size_t>(std::distance(first, last));
  return used + count <= 1 + further_.size();
}

bool sessions::is_ours(std::string_view id) const {
  const std::lock_guard lock{guard_};
  return (current_ && current_->id == id) ||
         std::ranges::find(further_, id, &further::id) != further_.end();
}

// Those that were in use neither now nor at the renewal before: each costs a request at every renewal.
std::vector<std::string> sessions::take_unused() {
  const std::lock_guard lock{guard_};
  std::vector<std::string> unused, out;
  for (const auto& one : further_)
    if (std::ranges::find(used_, one.id, [](const auto& use) { return use.second; }) == used_.end())
      unused.push_back(one.id);
  for (const auto& id : unused)
    if (std::ranges::find(unused_, id) != unused_.end()) out.push_back(id);
  std::erase_if(further_,
                [&](const auto& one) { return std::ranges::find(out, one.id) != out.end(); });
  unused_ = std::move(unused);
  return out;
}

void sessions::destroy_in_background(const std::vector<std::string>& ids) {
  constexpr nanoseconds patience = 5s;  // else it ends by itself
  for (const auto& id : ids)
    agent_.ask_in_background(put("/v1/session/destroy/" + id), patience, [](const answer&) {});
}

operation<std::vector<std::string>> sessions::reserve(std::string_view name, std::size_t count,
                                                      invocation how) {
  std::vector<std::string> out;
  for (;;) {
    {
      const std::lock_guard lock{guard_};
      if (take_free(name, count, out)) co_return std::move(out);
      if (!current_)
        co_return error{errc::unavailable, agent_.how().url + ": the session ended meanwhile."};
    }
    const auto sent = clock_.now();
    auto made = co_await create(how);
    if (!made) co_return std::move(made).error();
    const std::lock_guard lock{guard_};
    further_.push_back({std::move(*made), sent});
  }
}

void sessions::give_back(std::string_view name, const std::vector<std::string>& ids) {
  const std::lock_guard lock{guard_};
  for (const auto& id : ids) {
    const auto [first, last] = used_.equal_range(name);
    const auto at = std::find_if(first, last, [&](const auto& use) { return use.second == id; });
    if (at != last) used_.erase(at);
  }
}

// ---- the end

operation<void> sessions::destroy(std::string id, invocation how) {
  const auto ask = put("/v1/session/destroy/" + id);
  auto said = co_await agent_.ask(ask, how);
  if (!said.got) co_return std::move(said.got).error();
  if (said.got->status != 200 && said.got->status != 404)
    co_return status_error(*said.got, {}, agent_.how().url);
  co_return result<void>{};
}

void sessions::destroy_all(const call& limits) noexcept {
  std::vector<std::string> all;
  transaction left;
  for (const auto& key : take_left_keys()) left.erase(key);
  {
    const std::lock_guard lock{guard_};
    for (const auto& one : std::exchange(further_, {})) all.push_back(one.id);
    if (current_) all.push_back(current_->id);
    if (current_ && !agent_.how().keys_are_deleted) left.erase(current_->epoch_key);
    current_.reset();
  }
  if (left.size() > 0) static_cast<void>(agent_.run(put("/v1/txn", left.body()), limits));
  for (const auto& id : all) static_cast<void>(destroy(id, {limits, true}).run());
}

}  // namespace holdfast::engines::consul
