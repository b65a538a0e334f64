#include "leases.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr auto remembered_for = 10min;
constexpr std::size_t most_remembered = 100'000;  // of each key
constexpr std::size_t most_adopted = 1'000'000;
constexpr auto adoption_takes = 5s;
constexpr auto goodbye_takes = 5s;
constexpr auto second_look = 50ms;

std::int64_t this_process() {
  static const std::int64_t id = getpid();
  return id;
}

event own_event(event_kind what, const held_lease& about, std::string why = {}) {
  return {.what = what,
          .name = about.name,
          .token = about.grant.token().value,
          .label = about.terms.label,
          .pid = this_process(),
          .why = std::move(why)};
}

// How often a connection is told how long its lease is valid.
std::chrono::nanoseconds upkeep_interval(const held_lease& of) {
  return std::min<std::chrono::nanoseconds>(of.terms.ttl, connection_silence) / 3;
}

}  // namespace

// Whoever finds that the lease is over ends at once, and makes room for the next: one after the other, not one inside
// the other, since the line may be longer than the stack.
lease_turn::~lease_turn() {
  if (!is_mine_) return;
  of_->is_in_use = false;
  if (std::exchange(of_->is_serving, true)) return;
  while (!of_->is_in_use && !of_->next.empty()) {
    const auto next = of_->next.front();
    of_->next.pop_front();
    next.resume();
  }
  of_->is_serving = false;
}

lease_table::lease_table(loop& on, client store, state_folder& state, event_hub& events,
                         numbers& counts)
    : loop_(on),
      store_(std::move(store)),
      state_(state),
      events_(events),
      counts_(counts),
      own_(state.client()),
      time_(store_.capabilities().clock == expiry_clock::local_steady ? system_clock().local()
                                                                      : system_clock()) {
  for (const auto& each : state_.journal())
    requests_[each.request] = {each.question, each.sequences};
}

lease_ptr lease_table::make(lease grant, lease_terms terms, limits::place place,
                            steady_time asked_at) {
  auto out = std::make_shared<held_lease>();
  out->name = grant.name();
  out->owner = grant.owner();
  if (out->owner == owner_id{}) return nullptr;
  out->grant = std::move(grant);
  out->terms = std::move(terms);
  out->place = std::move(place);
  out->since = steady::now();
  out->ends_at = asked_at + out->terms.ttl;
  out->token = out->grant.token().value;
  by_token_[{out->name, out->token}] = out;
  by_sequence_[out->owner.sequence] = out;
  own_ = out->owner.client;  // where the store has no successors it is another one each time
  if (out->terms.by == kept_by::client)
    appoint(*out, out->ends_at);
  else if (out->terms.by == kept_by::connection)
    appoint(*out, out->since + upkeep_interval(*out));
  return out;
}

lease_ptr lease_table::add(lease grant, const key& who, lease_terms terms, limits::place place,
                           steady_time asked_at) {
  auto out = make(std::move(grant), std::move(terms), std::move(place), asked_at);
  if (out == nullptr) return nullptr;
  claim(out, who);
  events_.publish(own_event(event_kind::granted, *out));
  return out;
}

void lease_table::claim(const lease_ptr& which, const key& who) {
  which->who = &who;
  which->id = state_.lease_id(which->owner, who.name);
  all_[which->id] = which;
}

lease_ptr lease_table::find(std::string_view id, const key& who) {
  const std::string text{id};
  const auto it = all_.find(text);
  if (it == all_.end()) return find_unclaimed(text, who);
  return it->second->who == &who ? it->second : nullptr;
}

// The id of an adopted lease follows from the key that it was given to, and which one that was the store does not know.
lease_ptr lease_table::find_unclaimed(const std::string& id, const key& who) {
  if (unclaimed_.empty()) return nullptr;
  if (std::ranges::find(claimed_for_, &who) == claimed_for_.end()) {
    claimed_for_.push_back(&who);
    for (const auto& each : unclaimed_)
      candidates_[state_.lease_id(each->owner, who.name)] = {&who, each};
  }
  const auto it = candidates_.find(id);
  if (it == candidates_.end() || it->second.first != &who) return nullptr;
  const auto which = it->second.second.lock();
  if (which == nullptr || which->is_over) return nullptr;
  if (which->who == nullptr) {
    claim(which, who);
    unclaimed_.erase(which);
    none_unclaimed();
  }
  return which->who == &who ? which : nullptr;
}

// Whose they are is known of all: nobody has to be looked for any more.
void lease_table::none_unclaimed() noexcept {
  if (!unclaimed_.empty()) return;
  candidates_.clear();
  claimed_for_.clear();
}

lease_table::ended* lease_table::find_ended(std::string_view id, const key& who) {
  const auto it = ended_.find(std::string{id});
  return it == ended_.end() || it->second.who != &who ? nullptr : &it->second;
}

// What is left now, and what has passed since `from`: a lease that was waited for has all of its ttl before it.
std::chrono::nanoseconds lease_table::valid(const held_lease& which, steady_time from) const {
  const auto until = which.grant.valid_until();
  if (which.is_over || until == steady_time::min()) return 0ns;
  const auto now = steady::now();
  std::chrono::nanoseconds left = until - time_.now();
  if (which.terms.by == kept_by::client)
    left = std::min<std::chrono::nanoseconds>(left, which.ends_at - now);
  // A connection that nothing comes through is given up, and its lease with it.
  if (which.terms.by == kept_by::connection) {
    const auto to = which.keeper.lock();
    left = std::min<std::chrono::nanoseconds>(left, to == nullptr ? 0ns : to->lives_for());
  }
  if (left <= 0ns) return 0ns;
  return std::min(left, which.terms.ttl) + (now - from);
}

void lease_table::renewed(held_lease& which, steady_time now) noexcept {
  which.ends_at = std::max(which.ends_at, now + which.terms.ttl);
  which.is_suspect = false;
}

// Who tells of a loss knows the new token, and the table did not until now.
bool lease_table::changed(const lease_ptr& which) {
  if (which->is_over) return false;
  const auto now = which->grant.owner();
  if (now == owner_id{}) {
    lost(which, "it ended in the moment of the upgrade");
    return false;
  }
  by_token_.erase({which->name, which->token});
  which->token = which->grant.token().value;
  by_token_[{which->name, which->token}] = which;
  which->earlier_sequences.push_back(std::exchange(which->owner, now).sequence);
  by_sequence_[which->owner.sequence] = which;
  const auto id = state_.lease_id(which->owner, which->who->name);
  if (id == which->id) return true;
  which->earlier_ids.push_back(std::exchange(which->id, id));
  all_[id] = which;
  events_.publish(own_event(event_kind::granted, *which, "upgraded"));
  return true;
}

void lease_table::forget(const lease_ptr& which, std::string why) {
  which->is_over = true;
  which->process.reset();
  which->process_place = {};
  cancel_appointment(*which);
  const auto token = which->grant.token().value;
  by_token_.erase({which->name, which->token});
  by_sequence_.erase(which->owner.sequence);
  for (const auto sequence : which->earlier_sequences) by_sequence_.erase(sequence);
  if (!which->terms.request.empty()) end_request(which->terms.request, which->who);
  if (which->who == nullptr) {
    unclaimed_.erase(which);
    none_unclaimed();
    return;
  }
  const auto drop = [&, now = steady::now()](const std::string& id) {
    all_.erase(id);
    ended_[id] = {which->who, why, which->name, token};
    remembered_[which->who].leases.emplace_back(now, id);
  };
  drop(which->id);
  for (const auto& id : which->earlier_ids) drop(id);
  prune(which->who);
}

void lease_table::end_request(const std::string& hash, const key* who) {
  const auto it = requests_.find(hash);
  if (it == requests_.end() || it->second.ended_at) return;
  it->second.ended_at = steady::now();
  remembered_[who].requests.emplace_back(*it->second.ended_at, hash);
}

void lease_table::prune(const key* of) {
  const auto limit = steady::now() - remembered_for;
  const auto shorten = [limit](in_order& all, auto& from) {
    while (!all.empty() && (all.front().first < limit || all.size() > most_remembered)) {
      from.erase(all.front().second);
      all.pop_front();
    }
  };
  const auto forget_old = [&](remembered& its) {
    shorten(its.leases, ended_);
    shorten(its.requests, requests_);
  };
  forget_old(remembered_[of]);
  // Now and then of all: some keys do not come again.
  if (limit < pruned_at_) return;
  pruned_at_ = steady::now();
  for (auto& [who, its] : remembered_) forget_old(its);
}

task<result<void>> lease_table::end(lease_ptr which, std::string why) {
  if (which->stop_upgrade) which->stop_upgrade();
  lease_turn turn{which};
  co_await turn;
  auto done = co_await end_now(which, std::move(why));
  co_return done;
}

// A renewal may have come while this waited for its turn: then its client has been told that the lease goes on.
task<> lease_table::expire(lease_ptr which) {
  lease_turn turn{which};
  co_await turn;
  if (which->is_over) co_return;
  if (steady::now() < which->ends_at) {
    appoint(*which, which->ends_at);
    co_return;
  }
  const auto ttl = std::chrono::duration_cast<std::chrono::milliseconds>(which->terms.ttl);
  auto ignored = co_await end_now(
      which, fmt::format("its client has not renewed it within its ttl of {} ms", ttl.count()));
  (void)ignored;  // the library gives it back in the background
}

result<void> lease_table::how_it_ended(const held_lease& which) const {
  if (which.is_left)
    return error{errc::unavailable, "the service is about to end, and the next one has the lease"};
  const auto known = ended_.find(which.id);
  if (known == ended_.end()) return {};
  if (known->second.is_unsure)
    return error{errc::outcome_unknown, "the store has not confirmed yet that it was given back"};
  if (known->second.why.empty()) return {};
  return error{errc::lost, known->second.why};
}

task<result<void>> lease_table::end_now(lease_ptr which, std::string why) {
  if (which->is_over) co_return how_it_ended(*which);
  const bool is_wanted = why.empty();
  auto told = own_event(event_kind::released, *which, why);
  counts_.add_hold(which->name, steady::now() - which->since);
  forget(which, std::move(why));
  if (const auto known = ended_.find(which->id); is_wanted && known != ended_.end())
    known->second.is_unsure = true;  // as long as the store is asked
  auto released = co_await which->grant.async_release();
  which->place = {};
  if (!released && released.error().code() == errc::lost) {
    told.what = event_kind::lost;
    told.why = released.error().message();
  } else if (!is_wanted && which->terms.by == kept_by::client) {
    told.what = event_kind::lost;  // for its client, who has not been heard of
  }
  if (const auto known = ended_.find(which->id); is_wanted && known != ended_.end()) {
    known->second.is_unsure = !released && released.error().code() != errc::lost;
    if (!released && !known->second.is_unsure) known->second.why = released.error().message();
  }
  counts_.add(which->name, told.what == event_kind::lost ? outcome::lost : outcome::released);
  events_.publish(std::move(told));
  co_return released;
}

void lease_table::lost(const lease_ptr& which, std::string_view why) {
  if (which->is_over) return;
  if (which->is_elsewhere) {
    which->loss_to_tell = why;
    return;
  }
  events_.publish(own_event(event_kind::lost, *which, std::string{why}));
  counts_.add(which->name, outcome::lost);
  forget(which, std::string{why});
  which->place = {};
  if (const auto tell = std::exchange(which->on_lost, nullptr)) tell(why);
}

void lease_table::lost(std::string_view name, fencing_token token, std::string_view why) {
  const auto it = by_token_.find({std::string{name}, token.value});
  if (it == by_token_.end()) return;
  if (const auto which = it->second.lock()) lost(which, why);
}

// A store that hesitates, or that has not noticed yet that the predecessor is dead, is asked again: its clients count
// on these leases, and nobody else renews them.
void lease_table::adopt_all() {
  const auto& can = store_.capabilities();
  if (!can.outlives_client || !can.listing) return;
  const auto own = state_.client();
  for (const auto until = steady::now() + adoption_takes;;) {
    const auto listed = store_.list({}, most_adopted);
    if (!listed) throw lock_error{listed.error()};
    bool is_all = true;
    for (const auto& lock : *listed)
      for (const auto& holder : lock.holders)
        if (holder.owner.client == own && !by_sequence_.contains(holder.owner.sequence))
          is_all = adopt_one(lock, holder) && is_all;
    if (is_all || steady::now() > until) break;
    std::this_thread::sleep_for(20ms);
  }
  for (auto& [hash, note] : requests_) {
    const bool is_held = std::ranges::all_of(
        note.sequences, [&](std::uint64_t sequence) { return by_sequence_.contains(sequence); });
    if (!is_held) {
      end_request(hash, nullptr);
      continue;
    }
    for (const auto sequence : note.sequences)
      if (const auto which = by_sequence_.at(sequence).lock()) which->terms.request = hash;
  }
  compact_journal();
}

// False: try again.
bool lease_table::adopt_one(const lock_info& lock, const holder_info& holder) {
  auto grant = store_.adopt(lock.name, holder.owner);
  if (!grant) return false;
  const auto before = time_.now();
  const auto proof = grant->renew();
  if (!proof && proof.error().code() == errc::lost) return true;
  lease_terms terms{.label = holder.label};
  // What was left of the ttl when the store confirmed it is all of it, less the time that took.
  terms.ttl =
      std::max(1ms, std::chrono::floor<std::chrono::milliseconds>(grant->valid_until() - before));
  terms.longest_ttl = terms.ttl;
  if (holder.mode == lock_mode::permits) terms.permits = holder.weight, terms.of = lock.capacity;
  if (auto made = make(std::move(*grant), std::move(terms), {}, steady::now()))
    unclaimed_.insert(std::move(made));
  return true;
}

void lease_table::leave_all() {
  std::vector<lease_ptr> all(unclaimed_.begin(), unclaimed_.end());
  for (const auto& [id, which] : all_)
    if (id == which->id) all.push_back(which);
  for (const auto& each : all) {
    if (std::exchange(each->is_over, true)) continue;
    each->appointment.reset();
    if (each->terms.by == kept_by::connection) {
      if (const auto tell = std::exchange(each->on_lost, nullptr)) tell("the service has ended");
      each->on_upkeep = nullptr;
      to_give_back_.push_back(each);
      continue;
    }
    each->is_left = true;
    if (each->is_in_use || !each->grant.leave_behind()) to_abandon_.push_back(each);
  }
  all_.clear();
  unclaimed_.clear();
  appointments_.clear();
  alarm_.reset();
}

bool lease_table::give_back_all() {
  const auto until = steady::now() + goodbye_takes;
  for (const auto& each : std::exchange(to_give_back_, {})) {
    if (each->is_in_use || steady::now() > until) {
      to_abandon_.push_back(each);
    } else {
      auto ignored = each->grant.release();
      (void)ignored;  // then its ttl ends it
    }
  }
  return std::ranges::none_of(to_abandon_, [now = steady::now()](const lease_ptr& each) {
    return each->terms.by != kept_by::client || now < each->ends_at;
  });
}

std::optional<lease_table::answered> lease_table::of_request(const std::string& hash,
                                                             const key& who) {
  prune(&who);
  prune(nullptr);
  const auto it = requests_.find(hash);
  if (it == requests_.end()) return std::nullopt;
  answered out{it->second.question, {}};
  if (it->second.ended_at) return out;
  for (const auto sequence : it->second.sequences) {
    const auto found = by_sequence_.find(sequence);
    const auto which = found == by_sequence_.end() ? nullptr : found->second.lock();
    if (which == nullptr || which->is_over) return std::nullopt;
    if (which->who == nullptr) {  // the hash has the name of the key in it
      claim(which, who);
      unclaimed_.erase(which);
      none_unclaimed();
    }
    out.leases.push_back(which);
  }
  return out;
}

void lease_table::note_request(const std::string& hash, const std::string& question,
                               const std::vector<lease_ptr>& got) {
  auto& note = requests_[hash];
  note = {question, {}};
  for (const auto& each : got) {
    each->terms.request = hash;
    note.sequences.push_back(each->owner.sequence);
  }
  if (!store_.capabilities().outlives_client) return;
  state_.note({hash, question, note.sequences});
  if (state_.noted() > 10'000 && state_.noted() > 2 * requests_.size()) compact_journal();
}

void lease_table::compact_journal() {
  std::vector<journal_entry> entries;
  for (const auto& [hash, note] : requests_)
    entries.push_back({hash, note.question, note.sequences});
  state_.keep(std::move(entries));
}

// One timer for all: 20,000 of them would cost more than the leases.
void lease_table::appoint(held_lease& which, steady_time at) {
  cancel_appointment(which);
  which.appointment = appointments_.emplace(at, &which);
  if (at >= alarm_at_) return;
  alarm_at_ = at;
  alarm_ = loop_.after(at - steady::now(), [this] { keep_appointments(); });
}

void lease_table::cancel_appointment(held_lease& which) noexcept {
  if (const auto old = std::exchange(which.appointment, std::nullopt)) appointments_.erase(*old);
}

void lease_table::keep_appointments() {
  const auto now = steady::now();
  alarm_at_ = steady_time::max();
  while (!appointments_.empty() && appointments_.begin()->first <= now) {
    const auto which = appointments_.begin()->second->shared_from_this();
    cancel_appointment(*which);
    visit_one(which, now);
  }
  if (appointments_.empty()) return;
  alarm_at_ = appointments_.begin()->first;
  alarm_ = loop_.after(alarm_at_ - now, [this] { keep_appointments(); });
}

void lease_table::visit_one(const lease_ptr& which, steady_time now) {
  if (which->terms.by == kept_by::connection) {
    if (which->on_upkeep) which->on_upkeep();
    return appoint(*which, now + upkeep_interval(*which));
  }
  if (which->stop_upgrade) renewed(*which, now);
  if (now < which->ends_at) return appoint(*which, which->ends_at);
  if (!std::exchange(which->is_suspect, true)) return appoint(*which, now + second_look);
  spawn(expire(which));
}

}  // namespace holdfast::server
