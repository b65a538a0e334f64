// How a Redlock ends: giving back, releasing, settling what is in doubt; and keeping what is held.
#include "engines/redis/redlock.hpp"

#include "engines/common/sentences.hpp"
#include "engines/redis/compat_layout.hpp"
#include "engines/redis/late_requests.hpp"
#include "engines/redis/redlock_scripts.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds longest_overtime = 200ms;

std::int64_t mark_ms(bool wanted) { return wanted ? late_requests::mark_kept.count() : 0; }

nanoseconds longest_doubt(nanoseconds ttl) {
  return std::max<nanoseconds>(ttl, late_requests::mark_kept);
}

bool is_answered(const std::optional<result<answer>>& said) { return said && *said; }

}  // namespace

// ---- votes of an attempt that was not won

command redlock::give_back_command(std::string_view name, const std::string& value,
                                   bool marks) const {
  command out{redlock_scripts::give_back(), 2, 2};
  out << key(name) << beside(name, "over:" + value) << value << mark_ms(marks);
  return out;
}

// Takes the answer of a node. A vote that may still be there, or still come, is given back when the node is reached; by
// then it is not known any more what stands in front of it, so that leaves a mark. Not only until the ttl is over: that
// of a vote which is still on its way begins when it is delivered.
std::function<void(std::size_t, const result<answer>&)> redlock::owing(std::string_view name,
                                                                       command debt,
                                                                       nanoseconds ttl) {
  const auto until = std::chrono::steady_clock::now() + longest_doubt(ttl);
  return [this, debt = std::move(debt), until, known = std::string{name}](
             std::size_t node, const result<answer>& said) {
    if (!said) (*nodes_)[node].owe(known, debt, until);
  };
}

// Behind the requests for the votes, over the same connections; a vote whose connection broke finds a mark.
redlock_nodes::question redlock::give_back_question(const request& ask, const attempt& now,
                                                    const ballots& got,
                                                    const std::vector<bool>& in_doubt) {
  redlock_nodes::question out;
  out.name = ask.name;
  out.what.resize(nodes_->size());
  for (std::size_t i = 0; i < nodes_->size(); ++i) {
    // One that had not answered when the outcome was known is in front of this, unless its connection broke since.
    const auto said = got[i] ? vote_in(*got[i]) : in_doubt[i] ? vote::in_doubt : vote::yes;
    if (!now.asked[i] || said == vote::no || said == vote::none) continue;
    out.what[i] = give_back_command(ask.name, now.value, said == vote::in_doubt);
  }
  out.on_late = owing(ask.name, give_back_command(ask.name, now.value, true), ask.ttl);
  return out;
}

operation<bool> redlock::give_votes_back(const request& ask, const attempt& now, const ballots& got,
                                         bool awaited, invocation how) {
  std::vector<bool> in_doubt;
  {
    const std::lock_guard lock{guard_};
    auto& known = candidates_[ask.owner.sequence];
    known.is_open = false;
    in_doubt = known.in_doubt;
    in_doubt.resize(nodes_->size(), false);  // of one that was forgotten meanwhile
  }
  auto question = give_back_question(ask, now, got, in_doubt);
  const auto owed = question.asked();
  if (owed == 0) co_return true;
  // Not cut short by the caller's stop, and hardly by its deadline: what stays behind would keep others out.
  const call unlimited;
  auto limits = node_call(unlimited, ask.ttl);
  if (!awaited) {
    nodes_->send(std::move(question), limits);
    co_return false;
  }
  const auto end =
      how.limits.stop.stop_requested() ? std::chrono::steady_clock::now() : how.limits.deadline;
  if (end != steady_time::max())
    limits.deadline = std::min(limits.deadline, end + longest_overtime);
  const auto owe = question.on_late;
  const auto said = co_await nodes_->ask(std::move(question), limits, how);
  for (std::size_t i = 0; i < said.size(); ++i)
    if (said[i]) owe(i, *said[i]);
  co_return static_cast<std::size_t>(std::ranges::count_if(said, is_answered)) == owed;
}

// ---- an owner

redlock::ended redlock::sum_of_ended(const ballots& got, std::size_t without) {
  ended out;
  out.gone = without;
  for (const auto& said : got) {
    if (!is_answered(said)) continue;
    const auto& items = (*said)->values.front().items;
    ++(!items.empty() && number_in(items[0]) == 1 ? out.freed : out.gone);
  }
  return out;
}

// By others: our own client may still listen for a while after it has waited.
bool redlock::is_waited_for(std::string_view name, const ballots& got) {
  const auto on = waiters_channel(name);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!is_answered(got[i])) continue;
    const auto& items = (*got[i])->values.front().items;
    const std::int64_t ourselves = (*nodes_)[i].messages().heard(on) != 0 ? 1 : 0;
    if (items.size() > 1 && number_in(items[1]) > ourselves) return true;
  }
  return false;
}

// Only where a vote may be: the others have nothing to give back.
redlock_nodes::question redlock::release_question(std::string_view name, const owner_id& owner,
                                                  const std::optional<candidate>& known,
                                                  nanoseconds ttl, bool marks) {
  const auto with = [&](bool wanted) {
    command what{redlock_scripts::release(), 2, 4};
    what << key(name) << beside(name, "over:" + to_string(owner)) << to_string(owner)
         << mark_ms(wanted) << waiters_channel(name) << watchers_channel(name);
    return what;
  };
  auto out = to_all(name, with(marks));
  for (std::size_t i = 0; known && i < out.what.size(); ++i) {
    if (!marks && i < known->in_doubt.size() && known->in_doubt[i]) out.what[i] = with(true);
    if (i < known->may_have.size() && !known->may_have[i]) out.what[i].reset();
  }
  out.is_decided = [this, without = nodes_->size() - out.asked()](const ballots& got) {
    const auto so_far = sum_of_ended(got, without);
    return so_far.freed >= nodes_->quorum() || is_impossible(so_far.gone);
  };
  out.on_late = owing(name, with(true), ttl);
  return out;
}

operation<redlock::ended> redlock::end_owner(std::string_view name, owner_id owner, nanoseconds ttl,
                                             bool marks, invocation how) {
  std::optional<candidate> known;
  {
    const std::lock_guard lock{guard_};
    if (const auto at = candidates_.find(owner.sequence); at != candidates_.end()) {
      at->second.holds = at->second.is_open = false;
      at->second.touched = clock_.now();
      known = at->second;
    }
  }
  auto question = release_question(name, owner, known, ttl, marks);
  const auto without = nodes_->size() - question.asked();
  if (marks) question.is_decided = nullptr;  // every mark counts
  const auto owe = question.on_late;
  const auto limits = node_call(how.limits, ttl);
  const auto got = co_await nodes_->ask(std::move(question), limits, how);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i]) owe(i, *got[i]);
  auto out = sum_of_ended(got, without);
  out.is_waited_for = is_waited_for(name, got);
  out.why = too_few(name, got);
  co_return out;
}

operation<void> redlock::do_release(const grant& held, invocation how) {
  note_released(held.name);
  const auto over = co_await end_owner(held.name, held.owner, held.ttl, false, how);
  if (!over) co_return over.error();
  note_listeners(held.name, over->is_waited_for);
  if (is_impossible(over->gone)) {
    forget(held.owner);
    co_return lock_not_held(held.name, how_.url, held.owner);
  }
  // Freed by a majority, or by so many that none is left.
  if (over->freed >= nodes_->quorum() || is_impossible(over->freed + over->gone)) {
    forget(held.owner);
    co_return result<void>{};
  }
  co_return error{errc::outcome_unknown, over->why->message()};
}

// A waiter has given its votes back already; what may still come finds a mark.
operation<void> redlock::do_leave(const ticket& place, invocation how) {
  const auto known = find(place.owner);
  const bool in_doubt = known && std::ranges::count(known->in_doubt, true) > 0;
  if (!known || (!in_doubt && !known->holds)) {
    forget(place.owner);
    co_return result<void>{};
  }
  const auto over = co_await end_owner(place.name, place.owner, how_.longest_ttl, true, how);
  if (!over) co_return over.error();
  if (!is_impossible(over->freed + over->gone))
    co_return error{errc::outcome_unknown, over->why->message()};
  forget(place.owner);
  co_return result<void>{};
}

// ---- after a doubt

operation<entered> redlock::do_settle(const request& ask, invocation how) {
  const auto known = find(ask.owner);
  // An attempt of ours that was not won was given back, and what gives it back may still be on its way: it never
  // counts as a grant.
  auto inside =
      known && !known->holds ? settle_as_nothing(ask, how) : settle_holder(ask, known, how);
  co_return co_await inside;
}

operation<entered> redlock::settle_as_nothing(const request& ask, invocation how) {
  const auto ttl = ask.ttl > 0ns ? ask.ttl : how_.longest_ttl;
  const auto over = co_await end_owner(ask.name, ask.owner, ttl, true, how);
  if (!over) co_return over.error();
  if (!is_impossible(over->freed + over->gone)) co_return *over->why;
  forget(ask.owner);
  co_return entered{};
}

// The value that most nodes have of this owner; of one that we know, its own.
redlock::found_votes redlock::find_votes(const ballots& got, const std::string& own) const {
  std::map<std::string, found_votes, std::less<>> by_value;
  std::size_t others = 0;
  for (const auto& said : got) {
    if (!is_answered(said)) continue;
    const auto& items = (*said)->values.front().items;
    if (items.size() < 4 || (!own.empty() && items[1].text != own)) {
      ++others;
      continue;
    }
    auto& votes = by_value[std::string{items[1].text}];
    votes.value = items[1].text;
    votes.token = std::max(votes.token, static_cast<std::uint64_t>(number_in(items[2])));
    votes.left.push_back(time_left(number_in(items[3])));
  }
  found_votes out;
  for (auto& [value, votes] : by_value)
    if (votes.left.size() > out.left.size()) out = votes;
  for (const auto& [value, votes] : by_value)
    if (value != out.value) others += votes.left.size();
  out.others = others;
  std::ranges::sort(out.left, std::greater{});
  return out;
}

operation<entered> redlock::settle_holder(const request& ask, std::optional<candidate> known,
                                          invocation how) {
  command what{redlock_scripts::settle(), 2, 1};
  what << key(ask.name) << beside(ask.name, "token") << to_string(ask.owner);
  const auto ttl = ask.ttl > 0ns ? ask.ttl : how_.longest_ttl;
  const auto sent = clock_.now();
  const auto limits = node_call(how.limits, ttl);
  auto question = to_all(ask.name, what);
  const auto got = co_await nodes_->ask(std::move(question), limits, how);
  const auto found = find_votes(got, known ? value_of(ask.owner, known->attempt) : std::string{});
  if (is_impossible(found.others)) co_return co_await settle_as_nothing(ask, how);
  if (found.left.size() < nodes_->quorum()) co_return too_few(ask.name, got);
  // The token of one that we do not know must be on a majority before we name it.
  const fencing_token token = known ? known->token : fencing_token{found.token};
  if (!known) {
    auto raised = co_await raise_tokens(ask.name, found.value, token.value, ttl, how);
    if (!raised || !*raised) co_return too_few(ask.name, got);
  }
  auto of_majority = ask;
  of_majority.ttl = ttl;
  const auto from = sent + std::min(found.left[nodes_->quorum() - 1], ttl) - ttl;
  co_return granted(of_majority, attempt_in(found.value), token, from);
}

// ---- keeping

// The very value: a vote of an attempt that was given back may be taken away by what is still on its way.
command redlock::renew_command(std::span<const renewal> some) const {
  command out{redlock_scripts::renew(), 2 * some.size(), 4 * some.size()};
  for (const auto& asked : some) out << key(asked.held->name) << beside(asked.held->name, "token");
  for (const auto& asked : some)
    out << value_of(asked.held->owner, asked.held->handle) << in_ms(asked.held->ttl)
        << token_kept(asked.held->ttl) << std::to_string(asked.held->token.value);
  return out;
}

renewal::verdict redlock::verdict_of(const ballots& got, std::size_t which) const {
  std::size_t yes = 0, no = 0;
  for (const auto& said : got) {
    if (!said || !*said) continue;
    const auto one = renewal_verdict(**said, 0, which);
    if (one == renewal::verdict::held) ++yes;
    if (one == renewal::verdict::lost) ++no;
  }
  if (yes >= nodes_->quorum()) return renewal::verdict::held;
  return is_impossible(no) ? renewal::verdict::lost : renewal::verdict::unknown;
}

redlock_nodes::question redlock::renew_question(std::span<const renewal> batch) const {
  auto what = renew_command(batch.first(std::min(most_per_script, batch.size())));
  for (auto at = most_per_script; at < batch.size(); at += most_per_script)
    what.then(renew_command(batch.subspan(at, std::min(most_per_script, batch.size() - at))));
  what.keep_errors();
  auto out = to_all({}, what);
  out.over_stream = true;
  out.is_decided = [this, size = batch.size()](const ballots& got) {
    for (std::size_t i = 0; i < size; ++i)
      if (verdict_of(got, i) == renewal::verdict::unknown) return false;
    return true;
  };
  return out;
}

operation<session_proof> redlock::do_renew(std::span<renewal> batch, invocation how) {
  if (batch.empty()) co_return session_proof{};
  auto shortest = batch.front().held->ttl;
  for (const auto& asked : batch) shortest = std::min(shortest, asked.held->ttl);
  auto question = renew_question(batch);
  const auto sent = clock_.now();
  // More than for a vote: a majority ends it anyway, and many leases take a node some time.
  auto limits = node_call(how.limits, shortest);
  limits.deadline =
      std::min(how.limits.deadline,
               std::max(limits.deadline, std::chrono::steady_clock::now() + shortest / 4));
  const auto got = co_await nodes_->ask(std::move(question), limits, how);
  if (std::ranges::none_of(got, is_answered))
    co_return error{errc::unavailable, too_few(batch.front().held->name, got).message()};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].answer = verdict_of(got, i);
    batch[i].valid_from = sent;
  }
  co_return session_proof{};  // there is none
}

operation<grant> redlock::do_downgrade(const grant& held, lock_mode, invocation) {
  co_return unsupported(held.name, "readers, so there is nothing to downgrade to");
}

}  // namespace holdfast::engines::redis
