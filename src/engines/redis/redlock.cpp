#include "engines/redis/redlock.hpp"

#include "engines/common/sentences.hpp"
#include "engines/common/server_clock.hpp"
#include "engines/redis/compat_layout.hpp"
#include "engines/redis/late_requests.hpp"
#include "engines/redis/redlock_scripts.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <random>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds shortest_token_kept = 10min;

nanoseconds random_between(nanoseconds low, nanoseconds high) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return nanoseconds{
      std::uniform_int_distribution<std::int64_t>{low.count(), high.count()}(random)};
}

bool is_permanent(errc code) { return code != errc::unavailable && code != errc::outcome_unknown; }

std::size_t ones_in(const ballots& got) {
  return static_cast<std::size_t>(std::ranges::count_if(got, [](const auto& said) {
    return said && *said && number_in((*said)->values.front()) == 1;
  }));
}

constexpr int tries_of_a_split_vote = 3;
// The window of a name: twice as long with each doubling. The longest is that of about a hundred clients.
constexpr nanoseconds half_a_window = 500us;
constexpr unsigned quarters_of_a_split = 4, most_quarters = 8 * quarters_of_a_split;
constexpr nanoseconds crowds_last = 10s;
// One that has just released waits for no longer. And it lets nobody go first with little time: a wait of a millisecond
// would end without a question.
constexpr nanoseconds courtesy = 4ms, too_short_to_give_way = 100ms;
constexpr nanoseconds for_the_answer = 500ms;  // which core adds to a wait
constexpr nanoseconds between_sweeps = 1min;
constexpr nanoseconds to_give_back = 200ms;

}  // namespace

// ---- names and limits

std::string redlock::beside(std::string_view name, std::string_view what) const {
  return fmt::format("{}{}:holdfast-{}", how_.prefix, name, what);
}

std::string redlock::value_of(const owner_id& owner, std::uint64_t attempt) {
  return fmt::format("{}.{}", to_string(owner), attempt);
}

std::uint64_t redlock::attempt_in(std::string_view value) {
  std::uint64_t out = 0;
  const auto digits = value.substr(std::min(value.find('.') + 1, value.size()));
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;
}

std::int64_t redlock::token_kept(nanoseconds ttl) const { return in_ms(shortest_token_kept + ttl); }

// A node that does not answer may cost a small part of the ttl only.
call redlock::node_call(const call& limits, nanoseconds ttl) const {
  const auto usual = std::clamp<nanoseconds>(ttl / 50, 50ms, 300ms);
  call out = limits;
  out.deadline = std::min(limits.deadline,
                          std::chrono::steady_clock::now() + how_.node_timeout.value_or(usual));
  return out;
}

redlock_nodes::question redlock::to_all(std::string_view name, const command& what) const {
  redlock_nodes::question out;
  out.name = name;
  out.what.assign(nodes_->size(), what);
  return out;
}

not_done redlock::unsupported(std::string_view name, std::string_view what) const {
  return not_done{errc::unsupported, fmt::format("Lock {} on {}: Redlock has no {}.",
                                                 support::quoted(name), how_.url, what)};
}

result<void> redlock::check(const request& ask) const {
  if (ask.name.find(":holdfast-") != std::string_view::npos)
    return not_done{errc::misconfigured,
                    fmt::format("Lock {} on {}: names with ':holdfast-' are those of tokens and "
                                "marks; choose another.",
                                support::quoted(ask.name), how_.url)};
  if (ask.mode == lock_mode::exclusive && ask.replaces == nullptr) return {};
  return unsupported(
      ask.name,
      fmt::format("locks of the mode {}: two majorities share a node, but not which of several "
                  "holders each node has let in, so counts of holders cannot be added up",
                  to_string(ask.mode)));
}

// What a few nodes refuse for good is no reason to give up while the others may come back.
error redlock::too_few(std::string_view name, const std::optional<error>& why,
                       std::size_t refusals) const {
  return {why && is_impossible(refusals) ? why->code() : errc::unavailable,
          fmt::format("Lock {} on {}: fewer than {} of {} nodes gave an answer that counts in time "
                      "(?node_timeout= gives them more){}{}",
                      support::quoted(name), how_.url, nodes_->quorum(), nodes_->size(),
                      why ? ". One of the others: " : ".",
                      why ? std::string_view{why->message()} : std::string_view{})};
}

error redlock::too_few(std::string_view name, const ballots& got) const {
  std::optional<error> why;
  std::size_t refusals = 0;
  for (const auto& said : got) {
    if (!said || *said) continue;
    if (is_permanent(said->error().code())) ++refusals;
    if (!why || !is_permanent(why->code())) why = said->error();
  }
  return too_few(name, why, refusals);
}

// ---- what we know of our owners

std::optional<redlock::candidate> redlock::find(const owner_id& owner) const {
  const std::lock_guard lock{guard_};
  const auto at = candidates_.find(owner.sequence);
  return at == candidates_.end() ? std::nullopt : std::optional{at->second};
}

void redlock::forget(const owner_id& owner) {
  const std::lock_guard lock{guard_};
  candidates_.erase(owner.sequence);
}

std::vector<std::uint64_t> redlock::heard_so_far(const std::string& on) {
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < nodes_->size(); ++i) out.push_back((*nodes_)[i].messages().heard(on));
  return out;
}

// ---- asking for votes

redlock::attempt redlock::begin_attempt(const request& ask) {
  attempt out;
  // Never again, also when we forget the owner in between: what gives an attempt back may come late.
  out.number = last_attempt_.fetch_add(1) + 1;
  out.value = value_of(ask.owner, out.number);
  const auto now = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < nodes_->size(); ++i) out.asked.push_back(nodes_->has_vote(i, now));
  auto heard = heard_so_far(waiters_channel(ask.name));
  {
    const std::lock_guard lock{guard_};
    const auto begun = clock_.now();
    sweep(begun);
    auto& known = candidates_[ask.owner.sequence];
    if (known.heard != heard) known.pauses = 0;
    known.touched = begun;
    known.has_drawn = false;
    known.in_doubt.resize(nodes_->size(), false);
    known.heard = std::move(heard);
    known.attempt = out.number;
    known.is_open = true;
    known.may_have = out.asked;
  }
  out.sent = clock_.now();
  return out;
}

result<void> redlock::check_voters(std::string_view name, const attempt& now) const {
  const auto voters = static_cast<std::size_t>(std::ranges::count(now.asked, true));
  if (voters >= nodes_->quorum()) return {};
  nanoseconds longest{};
  for (std::size_t i = 0; i < nodes_->size(); ++i)
    longest = std::max(longest, (*nodes_)[i].without_vote(std::chrono::steady_clock::now()));
  return not_done{
      errc::unavailable,
      fmt::format("Lock {} on {}: {} of {} nodes were started less than {} ago and may have "
                  "forgotten locks that are still held; they have no vote for another {}. Nodes "
                  "that keep all they have acknowledged (appendfsync always) need no such time: "
                  "?quarantine=0.",
                  support::quoted(name), how_.url, nodes_->size() - voters, nodes_->size(),
                  format_duration(how_.quarantine),
                  format_duration(std::chrono::ceil<std::chrono::seconds>(longest)))};
}

redlock_nodes::question redlock::vote_question(const request& ask, const attempt& now) {
  command what{redlock_scripts::vote(), 4, 3};
  what << key(ask.name) << beside(ask.name, "token")
       << beside(ask.name, "over:" + to_string(ask.owner)) << beside(ask.name, "over:" + now.value)
       << now.value << in_ms(ask.ttl) << token_kept(ask.ttl);
  auto out = to_all(ask.name, what);
  for (std::size_t i = 0; i < out.what.size(); ++i)
    if (!now.asked[i]) out.what[i].reset();
  out.is_decided = [this, now](const ballots& got) {
    const auto votes = count_votes(now, got);
    // A minority that says no says nothing about who holds it, also when it makes a majority impossible.
    return votes.yes >= nodes_->quorum() ||
           (is_impossible(votes.no + votes.not_asked) && votes.yes + votes.no >= nodes_->quorum());
  };
  out.on_late = [this, name = std::string{ask.name}, owner = ask.owner, ttl = ask.ttl,
                 number = now.number](std::size_t node, const result<answer>& got) {
    on_late_vote(node, got, {name, owner, number, ttl});
  };
  return out;
}

redlock::vote redlock::vote_in(const result<answer>& said) {
  if (!said) return said.error().is_not_done() ? vote::none : vote::in_doubt;
  const auto& items = said->values.front().items;
  if (items.size() < 2) return vote::in_doubt;
  return number_in(items[0]) == 1 ? vote::yes : vote::no;
}

// What was asked for may be won, given back or released by now.
void redlock::on_late_vote(std::size_t node, const result<answer>& got, const late_vote& of) {
  const auto what = vote_in(got);
  bool is_open = false;
  {
    const std::lock_guard lock{guard_};
    const auto at = candidates_.find(of.owner.sequence);
    if (at != candidates_.end() && at->second.attempt == of.attempt) {
      is_open = at->second.is_open;
      if (what == vote::no || what == vote::none) at->second.may_have[node] = false;
      if (what == vote::in_doubt) at->second.in_doubt[node] = true;
    }
  }
  if (is_open) return;
  // What gave it back stood behind it on its connection, unless that broke or the script had to be sent again. Only one
  // that was not answered can still be delivered, so only that needs a mark.
  const bool in_doubt = what == vote::in_doubt;
  if (!in_doubt && what != vote::yes) return;
  const auto longest = in_doubt ? std::max<nanoseconds>(of.ttl, late_requests::mark_kept) : of.ttl;
  (*nodes_)[node].owe(of.name, give_back_command(of.name, value_of(of.owner, of.attempt), in_doubt),
                      std::chrono::steady_clock::now() + longest);
}

redlock::tally redlock::count_votes(const attempt& now, const ballots& got) const {
  tally out;
  std::map<std::string_view, std::size_t> alike;
  const auto at = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!now.asked[i]) ++out.not_asked;
    if (!now.asked[i] || !got[i]) continue;
    const auto& said = *got[i];
    const auto what = vote_in(said);
    if (what == vote::in_doubt) out.in_doubt = true;
    if (!said) {
      if (is_permanent(said.error().code())) ++out.refusals;
      if (!out.why || !is_permanent(out.why->code())) out.why = said.error();
      if (said.error().message().find("HFOVER") != std::string::npos) out.is_given_up = true;
      continue;
    }
    const auto& items = said->values.front().items;
    if (what == vote::no) {
      ++out.no;
      out.left.push_back(time_left(number_in(items[1])));
      if (items.size() > 2) out.most_alike = std::max(out.most_alike, ++alike[items[2].text]);
      continue;
    }
    // A node that was reached for the first time has told us meanwhile that it is too young.
    if (what != vote::yes || !nodes_->has_vote(i, at)) continue;
    ++out.yes;
    const auto token = static_cast<std::uint64_t>(number_in(items[1]));
    if (token > out.token) out.have_token = 0;
    out.token = std::max(out.token, token);
    if (token == out.token) ++out.have_token;
  }
  return out;
}

redlock_nodes::question redlock::raise_question(std::string_view name, std::string_view value,
                                                std::uint64_t token, nanoseconds ttl) const {
  command what{redlock_scripts::raise_token(), 2, 3};
  what << key(name) << beside(name, "token") << value << std::to_string(token) << token_kept(ttl);
  auto out = to_all(name, what);
  out.is_decided = [this](const ballots& got) { return ones_in(got) >= nodes_->quorum(); };
  return out;
}

operation<bool> redlock::raise_tokens(std::string_view name, std::string value, std::uint64_t token,
                                      nanoseconds ttl, invocation how) {
  auto question = raise_question(name, value, token, ttl);
  const auto limits = node_call(how.limits, ttl);
  const auto got = co_await nodes_->ask(std::move(question), limits, how);
  co_return ones_in(got) >= nodes_->quorum();
}

entered redlock::granted(const request& ask, std::uint64_t number, fencing_token token,
                         steady_time from) {
  {
    const std::lock_guard lock{guard_};
    auto& known = candidates_[ask.owner.sequence];
    known.holds = true;
    known.token = token;
    known.attempt = number;
    known.may_have.resize(nodes_->size(), true);
    known.in_doubt.resize(nodes_->size(), false);
    known.touched = clock_.now();
  }
  entered out;
  out.what = entered::kind::granted;
  out.granted.name = ask.name;
  out.granted.owner = ask.owner;
  out.granted.token = token;
  out.granted.valid_from = from;
  out.granted.ttl = ask.ttl;
  out.granted.handle = number;
  return out;
}

operation<entered> redlock::do_enter(const request& ask, invocation how) {
  if (auto ok = check(ask); !ok) co_return std::move(ok).error();
  if (const auto known = find(ask.owner); known && known->holds) {
    auto held = co_await settle_holder(ask, known, how);
    // Nothing was asked for, but it may hold: that is no "not done".
    if (!held) co_return error{errc::outcome_unknown, held.error().message()};
    co_return std::move(held);
  }
  if (const auto turn = turn_of(ask, how.limits)) {
    entered later;
    later.what = entered::kind::waiting;
    later.waiting = ticket{ask.name, ask.owner};
    later.waiting.recheck_at = *turn;
    co_return later;
  }
  for (int tries = 1;; ++tries) {
    bool is_split = false;
    auto got = co_await try_once(ask, is_split, how);
    // One that does not wait asks again when nobody has a majority: "busy" would name a holder that is not there.
    const bool again = is_split && !ask.wait && tries < tries_of_a_split_vote;
    if (!again || how.limits.stop.stop_requested()) co_return std::move(got);
  }
}

operation<entered> redlock::try_once(const request& ask, bool& is_split, invocation how) {
  auto now = begin_attempt(ask);
  if (auto ok = check_voters(ask.name, now); !ok) {
    forget(ask.owner);
    co_return std::move(ok).error();
  }
  auto question = vote_question(ask, now);
  auto limits = node_call(how.limits, ask.ttl);
  // Time enough to give the votes back before the caller's is over.
  if (const auto start = std::chrono::steady_clock::now();
      how.limits.deadline != steady_time::max() && how.limits.deadline - start > 2 * to_give_back)
    limits.deadline = std::min(limits.deadline, how.limits.deadline - to_give_back);
  auto got = co_await nodes_->ask(std::move(question), limits, how);
  const auto votes = count_votes(now, got);
  note_votes(ask.owner, got);
  bool won = votes.yes >= nodes_->quorum();
  if (won && votes.have_token < nodes_->quorum()) {
    auto raised = co_await raise_tokens(ask.name, now.value, votes.token, ask.ttl, how);
    won = raised && *raised;
  }
  // Core takes the same off; here it decides whether the votes are kept at all.
  const auto drift = ask.ttl / 1'000'000 * caps_.drift_ppm + caps_.margin;
  if (won || votes.most_alike >= nodes_->quorum()) note_decided(ask.name);
  if (won && clock_.now() < now.sent + ask.ttl - drift)
    co_return granted(ask, now.number, {votes.token}, now.sent);
  is_split =
      !won && votes.yes + votes.no >= nodes_->quorum() && votes.most_alike < nodes_->quorum();
  if (is_split) note_split(ask.name);
  co_return co_await fail(ask, std::move(now), std::move(got), votes, how);
}

void redlock::note_votes(const owner_id& owner, const ballots& got) {
  const std::lock_guard lock{guard_};
  auto& known = candidates_[owner.sequence];
  known.may_have.resize(nodes_->size(), true);
  known.in_doubt.resize(nodes_->size(), false);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!got[i]) continue;
    const auto what = vote_in(*got[i]);
    if (what == vote::no || what == vote::none) known.may_have[i] = false;
    if (what == vote::in_doubt) known.in_doubt[i] = true;
  }
}

// ---- without a majority

// Other holders have too many nodes, or nobody has enough; or too few nodes have answered.
operation<entered> redlock::fail(const request& ask, attempt now, ballots got, tally votes,
                                 invocation how) {
  const bool is_answered = votes.yes + votes.no >= nodes_->quorum() && !votes.is_given_up;
  const bool was_won = votes.yes >= nodes_->quorum();  // but too slowly, or without a token
  const bool is_refused = is_answered && !was_won;
  auto given_back = co_await give_votes_back(ask, now, got, !is_refused, how);
  if (is_refused) co_return refused(ask, votes);
  const auto why =
      was_won ? error{errc::unavailable,
                      fmt::format("Lock {} on {}: a majority has voted for us, but not "
                                  "confirmed it before a lock of {} was worth nothing.",
                                  support::quoted(ask.name), how_.url, format_duration(ask.ttl))}
              : too_few(ask.name, votes.why, votes.refusals);
  if (given_back && *given_back) {
    forget(ask.owner);
    co_return not_done{why.code(), why.message()};
  }
  co_return error{errc::outcome_unknown, why.message()};
}

entered redlock::refused(const request& ask, const tally& votes) {
  entered out;
  if (!ask.wait) {
    forget(ask.owner);
    return out;
  }
  out.what = entered::kind::waiting;
  out.waiting = ticket{ask.name, ask.owner};
  out.waiting.recheck_at = ask_again_at(ask, votes);
  return out;
}

// Votes that were split: soon, and at another time than the others. A lock that is held: at its end at the latest.
steady_time redlock::ask_again_at(const request& ask, const tally& votes) {
  const auto now = clock_.now();
  const std::lock_guard lock{guard_};
  auto& known = candidates_[ask.owner.sequence];
  if (votes.most_alike < nodes_->quorum()) {
    known.has_drawn = true;
    known.asks_at = now + random_between(half_a_window, half_a_window + window_of(ask.name, now));
    return known.asks_at;
  }
  const nanoseconds longest = 30ms * (1U << std::min(known.pauses++, 3U));
  auto pause = random_between(longest / 2, longest);
  auto left = votes.left;
  std::ranges::sort(left);
  const auto wanted = nodes_->quorum() - std::min(nodes_->quorum() - 1, votes.yes);
  if (wanted <= left.size() && left[wanted - 1] != no_expiry)
    pause = std::min<nanoseconds>(pause, left[wanted - 1] + 1ms);
  known.asks_at = now + pause;
  return known.asks_at;
}

// ---- a crowd

nanoseconds redlock::window_of(std::string_view name, steady_time now) const {
  const auto at = crowds_.find(name);
  if (at == crowds_.end() || at->second.quarters == 0) return 0ns;
  if (now - at->second.split_at > crowds_last) return 0ns;
  return half_a_window * (1U << at->second.quarters / quarters_of_a_split);
}

void redlock::note_split(std::string_view name) {
  const auto now = clock_.now();
  const std::lock_guard lock{guard_};
  auto& known = crowds_[std::string{name}];
  if (window_of(name, now) == 0ns) known.quarters = 0;
  known.quarters = std::min(known.quarters + quarters_of_a_split, most_quarters);
  known.split_at = now;
}

void redlock::note_decided(std::string_view name) {
  const std::lock_guard lock{guard_};
  const auto at = crowds_.find(name);
  if (at == crowds_.end()) return;
  auto& known = at->second;
  if (known.quarters > 0) --known.quarters;
  if (known.quarters == 0 && !known.is_waited_for) crowds_.erase(at);
}

void redlock::note_released(std::string_view name) {
  const std::lock_guard lock{guard_};
  if (const auto at = crowds_.find(name); at != crowds_.end())
    at->second.released_at = clock_.now();
}

void redlock::note_listeners(std::string_view name, bool are_there) {
  const std::lock_guard lock{guard_};
  auto at = crowds_.find(name);
  if (at == crowds_.end() && !are_there) return;
  if (at == crowds_.end()) at = crowds_.emplace(name, crowd{}).first;
  at->second.is_waited_for = are_there;
  at->second.released_at = clock_.now();
  if (!are_there && at->second.quarters == 0) crowds_.erase(at);
}

// All that hear of a release would ask at once, and the one that has released before them.
std::optional<steady_time> redlock::turn_of(const request& ask, const call& limits) {
  if (!ask.wait) return std::nullopt;
  const auto time_left = std::max<nanoseconds>(
      limits.deadline - std::chrono::steady_clock::now() - for_the_answer, 0ns);
  const bool is_patient = time_left > too_short_to_give_way;
  const auto now = clock_.now();
  const std::lock_guard lock{guard_};
  const auto window = window_of(ask.name, now);
  const auto at = candidates_.find(ask.owner.sequence);
  if (at == candidates_.end()) {
    const auto there = crowds_.find(ask.name);
    if (there == crowds_.end() || now - there->second.released_at > courtesy) return std::nullopt;
    if (!is_patient) return std::nullopt;
    const bool gives_way = there->second.is_waited_for;
    if (window == 0ns && !gives_way) return std::nullopt;
    auto& fresh = candidates_[ask.owner.sequence];
    fresh.touched = now;
    fresh.has_drawn = true;
    fresh.asks_at = now + (gives_way ? random_between(courtesy / 2, courtesy)
                                     : random_between(0ns, std::min(window, courtesy)));
    return fresh.asks_at;
  }
  auto& known = at->second;
  if (now >= known.asks_at) return std::nullopt;
  if (known.has_drawn) return known.asks_at;
  if (window == 0ns) return std::nullopt;
  known.has_drawn = true;
  known.asks_at =
      std::min(known.asks_at, now + random_between(0ns, std::min(window, time_left / 2)));
  return known.asks_at;
}

// What core has given up to ask about, because it is refused; a request of it cannot be delivered any more.
void redlock::sweep(steady_time now) {
  if (now - swept_at_ < between_sweeps) return;
  swept_at_ = now;
  std::erase_if(candidates_, [&](const auto& one) {
    return !one.second.holds && now - one.second.touched > 2 * late_requests::mark_kept;
  });
  std::erase_if(crowds_, [&](const auto& one) {
    return now - std::max(one.second.split_at, one.second.released_at) > crowds_last;
  });
}

// ---- waiting

void redlock::listen(const std::string& on, std::uint64_t id,
                     const std::vector<std::uint64_t>& heard, const call& limits,
                     std::function<void()> over) {
  struct progress_of_news {
    std::atomic<std::size_t> nodes{0};
    std::atomic<bool> is_over{false};
  };
  const auto news = std::make_shared<progress_of_news>();
  const auto end_listening = [this, id] {
    for (std::size_t i = 0; i < nodes_->size(); ++i) (*nodes_)[i].listeners().look_again(id);
  };
  waits_->for_grant(
      id, limits,
      [news, end_listening, over = std::move(over)](const std::optional<pushed_grant>&) {
        news->is_over = true;
        end_listening();
        over();
      });
  for (std::size_t i = 0; i < nodes_->size() && !news->is_over; ++i) {
    auto& node = (*nodes_)[i];
    if (node.is_deaf()) continue;
    node.messages().listen(on, id, i < heard.size() ? heard[i] : 0, {},
                           [this, id, news, &node](const result<void>& told) {
                             // A user without the right to listen: then the pauses alone have to do.
                             if (!told && told.error().code() == errc::denied) node.go_deaf();
                             if (!told || news->is_over) return;
                             if (news->nodes.fetch_add(1) + 1 == nodes_->quorum())
                               waits_->look_again(id);
                           });
  }
  if (news->is_over) end_listening();  // it ended while we began to listen
}

// Core ends it at recheck_at.
void redlock::start_await(const ticket& place, const call& limits,
                          completion<progress>& done) noexcept {
  const auto id = place.owner.sequence;
  const auto known = find(place.owner);
  if (known && known->has_drawn)
    return waits_->for_grant(
        id, limits, [&done](const std::optional<pushed_grant>&) { done.complete(progress{}); });
  listen(waiters_channel(place.name), id, known ? known->heard : std::vector<std::uint64_t>{},
         limits, [&done] { done.complete(progress{}); });
}

}  // namespace holdfast::engines::redis
