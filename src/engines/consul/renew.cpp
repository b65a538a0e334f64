// Renewals, heartbeats, the keys that this client holds, and the end of a session.
#include "engines/consul/consul_engine.hpp"

#include <algorithm>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

// A lock that is held for longer than that has its key watched: it may be taken away from us.
constexpr nanoseconds watched_after = 150ms;
constexpr nanoseconds removal_takes = 30s;
// Thousands at once would keep one another from ever being done.
constexpr std::size_t most_ended_at_once = 256;
constexpr std::size_t most_checks = transaction::most_operations - 2;

}  // namespace

// ---- renewals

// Held is what we know to hold, in the session that was last proven: the watches tell us of a key of ours that goes.
void consul_engine::conclude_renewal(std::span<renewal> batch, const session_view& now) {
  const auto time = clock_.now();
  for (auto& renewed : batch) {
    const auto own = entries_.find(renewed.held->owner);
    renewed.answer = renewal::verdict::lost;
    if (!own) continue;
    const auto lock = entries_.lock();
    if (own->is != own_entry::state::holding || own->is_lost || own->number != now.number) continue;
    renewed.answer = renewal::verdict::held;
    renewed.valid_from = time;
    renewed.session = now.proof();
    own->until = time + renewed.held->ttl;
  }
}

operation<session_proof> consul_engine::do_renew(std::span<renewal> batch, invocation how) {
  auto now = co_await sessions_->renew(how);
  if (!now) co_return as_reading(std::move(now).error());
  conclude_renewal(batch, *now);
  auto asked = co_await confirm(batch, *now, how);
  if (!asked) co_return as_reading(std::move(asked).error());
  for (auto& renewed : batch) {
    if (renewed.held->mode != lock_mode::permits || !renewed.must_ask) continue;
    if (auto counted = co_await confirm_permits(renewed, how); !counted)
      co_return as_reading(std::move(counted).error());
  }
  co_return now->proof();
}

// Each very key is compared: Consul says of every one whether it is as we wrote it.
operation<void> consul_engine::confirm(std::span<renewal> batch, const session_view& now,
                                       invocation how) {
  for (std::size_t from = 0; from < batch.size();) {
    transaction out;
    std::vector<std::pair<std::size_t, renewal*>> of;  // operation, lease
    for (; from < batch.size() && out.size() < most_checks; ++from) {
      auto& renewed = batch[from];
      if (renewed.answer != renewal::verdict::held) continue;
      const auto own = entries_.find(renewed.held->owner);
      if (!own) continue;
      const auto lock = entries_.lock();
      if (own->is_changing) {
        renewed.answer = renewal::verdict::unknown;
        continue;
      }
      of.emplace_back(out.size(), &renewed);
      out.check_index(own->key, own->modified);
      if (own->lock_index == 0) continue;
      of.emplace_back(out.size(), &renewed);
      out.check_index(keys_of(how_.root, own->name).lock, own->lock_index);
    }
    if (out.size() == 0) continue;
    const question ask{question::verb::put, "/v1/txn?consistent", out.body()};
    auto said = co_await agent_->ask(ask, how);
    auto got = read_txn_reply(std::move(said), out, {}, how_.url);
    if (!got) co_return std::move(got).error();
    for (const auto& [operation, renewed] : of) {
      if (!got->failed_at(operation)) continue;
      const auto own = entries_.find(renewed->held->owner);
      if (own) {
        const auto lock = entries_.lock();
        // Given back, or changed by ourselves, meanwhile: nobody has lost anything.
        const bool is_ours = own->is == own_entry::state::holding || own->is_lost;
        if (own->is_changing || !is_ours || own->number != now.number) {
          renewed->answer = renewal::verdict::unknown;
          continue;
        }
      }
      renewed->answer = renewal::verdict::lost;
      if (own)
        agent_->run_soon([this, own] { lose(own, "its key in Consul is not ours any more"); });
    }
  }
  co_return result<void>{};
}

// Another program may have struck them off the record and left our keys alone.
operation<void> consul_engine::confirm_permits(renewal& of, invocation how) {
  const auto own = entries_.find(of.held->owner);
  if (!own || of.answer != renewal::verdict::held) co_return result<void>{};
  auto seen = co_await look(of.held->name, how);
  if (!seen) co_return std::move(seen).error();
  const auto lock = entries_.lock();
  if (own->is != own_entry::state::holding || seen->counts_all(own->permit_sessions))
    co_return result<void>{};
  of.answer = renewal::verdict::lost;
  agent_->run_soon(
      [this, own] { lose(own, "its permits are not in the semaphore's record any more"); });
  co_return result<void>{};
}

// Upkeep, unless proof is asked for: we hear of it when a key of ours changes, and the store does not know the ttl. So
// what is known of the session says enough about a lease; a heartbeat asks for a new proof.
void consul_engine::start_renew(std::span<renewal> batch, const call& limits,
                                completion<session_proof>& done) noexcept {
  const auto known = sessions_->current();
  if (batch.empty() || !known || std::ranges::any_of(batch, &renewal::must_ask))
    return remote_engine::start_renew(batch, limits, done);
  conclude_renewal(batch, *known);
  done.complete(known->proof());
}

// ---- the own keys

void consul_engine::plan_tick() {
  {
    const std::lock_guard lock{grants_guard_};
    if (ending_ || std::exchange(tick_planned_, true)) return;
  }
  agent_->at(std::chrono::steady_clock::now() + watched_after, [this] { tick(); });
}

void consul_engine::note_new_grant(const mine& own) {
  {
    const std::lock_guard lock{grants_guard_};
    new_grants_.emplace_back(std::chrono::steady_clock::now(), own);
  }
  plan_tick();
}

// Most locks are given back before that.
void consul_engine::tick() {
  if (ending_) return;
  std::vector<mine> due;
  bool more = false;
  {
    const std::lock_guard lock{grants_guard_};
    tick_planned_ = false;
    const auto before = std::chrono::steady_clock::now() - watched_after;
    while (!new_grants_.empty() && new_grants_.front().first <= before) {
      if (auto own = new_grants_.front().second.lock()) due.push_back(std::move(own));
      new_grants_.pop_front();
    }
    more = !new_grants_.empty();
  }
  for (const auto& own : due) watch_own(own);
  watches_->follow_agent();
  sessions_->end_unproven();
  end_forgotten();
  {
    const auto lock = entries_.lock();
    more = more || !entries_.all().empty();
  }
  more = more || waits_->any();
  if (more) plan_tick();
}

// What core does not renew any more goes, although the session lives: its ttl is over.
void consul_engine::end_forgotten() {
  const auto now = clock_.now();
  if (now < look_for_forgotten_at_) return;
  look_for_forgotten_at_ = now + 500ms;
  std::vector<mine> over;
  {
    const auto lock = entries_.lock();
    for (const auto& [number, own] : entries_.all())
      if (own->is == own_entry::state::holding && own->until != steady_time{} && own->until < now &&
          over.size() < most_ended_at_once)
        over.push_back(own);
  }
  for (const auto& own : over) lose(own, "its time is over, and it was not renewed");
}

// On the agent's thread. What the store still has of it is removed.
void consul_engine::lose(const mine& own, std::string_view why) {
  if (ending_) return;
  {
    const auto lock = entries_.lock();
    if (own->is != own_entry::state::holding) return;
    own->is_lost = true;
  }
  if (!entries_.begin_release(*own)) return;
  listener_.on_lost(own->owner, why);
  remove_in_background(own);
}

namespace {

// A removal that no verb waits for; deletes itself when it is done.
struct background_removal final : completion<bool> {
  call limits;
  std::function<void(const result<bool>&)> then;
  void complete(result<bool> outcome) noexcept override {
    then(outcome);
    delete this;
  }
};

}  // namespace

void consul_engine::remove_in_background(const mine& own) {
  auto* const work = new background_removal;
  work->limits.deadline = std::chrono::steady_clock::now() + removal_takes;
  work->then = [this, own](const result<bool>& removed) {
    if (removed) return forget(own);
    const auto lock = entries_.lock();
    entries_.end_release(*own, clock_.now() + 1s);  // again, then
  };
  end_entry(own, {work->limits, false}).start(*work);
}

operation<bool> consul_engine::end_entry(mine own, invocation how) {
  if (auto ended = co_await end_late_requests(own, how); !ended) co_return std::move(ended).error();
  auto by_itself = co_await release_alone(own, how);
  if (!by_itself) co_return std::move(by_itself).error();
  if (*by_itself == alone::done) co_return true;
  co_return co_await remove(own->name, own->owner, how);
}

void consul_engine::watch_own(const mine& own) {
  if (ending_) return;
  const auto keys = keys_of(how_.root, own->name);
  std::string key;
  watches::seen
      known;  // of a folder, not what else is there: the first answer is looked at in any case
  bool is_writer = false;
  {
    const auto lock = entries_.lock();
    if (own->is != own_entry::state::holding || own->is_watched || own->is_changing) return;
    own->is_watched = true;
    is_writer = own->lock_index != 0;
    key = is_writer ? keys.lock : keys.folder;
    known.index = is_writer ? own->lock_index : own->modified;
    if (is_writer) known.keys = 1;
  }
  const std::weak_ptr<own_entry> weak{own};
  watches_->watch(key, own->owner.sequence | own_watch, known,
                  [this, weak, key](const std::vector<kv_pair>& now, std::uint64_t index) {
                    const auto still = weak.lock();
                    if (!still || ending_) return false;
                    return key.ends_with('/') ? on_own_folder(still, now, index)
                                              : on_own_key(still, now, index);
                  });
}

// Is it as we wrote it? False: it is not ours any more, or watched otherwise. `index`: of the answer, 0 when that is
// not to be had. An older one, of a server that is behind, says nothing about us.
bool consul_engine::on_own_key(const mine& own, const std::vector<kv_pair>& now,
                               std::uint64_t index) {
  {
    const auto lock = entries_.lock();
    if (own->is != own_entry::state::holding || !own->is_watched) return false;
    if (own->is_changing) return true;
    if (own->lock_index == 0) return false;  // its mode has changed
    if (index != 0 && index < own->modified) return true;
    if (!now.empty() && now.front().modified == own->lock_index && !now.front().session.empty())
      return true;
    // A query may have been asked before our own last change.
    if (!now.empty() && now.front().modified < own->lock_index) return true;
  }
  lose(own, now.empty() ? "its key in Consul was deleted" : "its key in Consul was overwritten");
  return false;
}

// Of a reader: its own key, and that no other program has .lock. Of permits: that the record counts them.
bool consul_engine::on_own_folder(const mine& own, const std::vector<kv_pair>& now,
                                  std::uint64_t index) {
  const lock_state seen{now, keys_of(how_.root, own->name)};
  std::string_view why;
  bool relocks = false;
  {
    const auto lock = entries_.lock();
    if (own->is != own_entry::state::holding || !own->is_watched || own->lock_index != 0)
      return false;
    if (own->is_changing || (index != 0 && index < own->modified)) return true;
    const auto* there = seen.find(own->owner);
    if (there == nullptr) {
      why = "its key in Consul was deleted";
    } else if (there->modified < own->modified) {
      return true;
    } else if (there->modified > own->modified) {
      why = "its key in Consul was overwritten";
    } else if (own->mode == lock_mode::permits) {
      if (!seen.counts_all(own->permit_sessions))
        why = "its permits are not in the semaphore's record any more";
    } else if (seen.is_held_by_others() && seen.lock_index() > own->modified) {
      why = "another program has locked it beside us";
    } else {
      relocks = seen.lock_session().empty();
    }
  }
  if (!why.empty()) {
    lose(own, why);
    return false;
  }
  if (relocks) relock(own, seen);
  return true;
}

// The reader whose session had .lock is dead: ours takes it, so that other programs stay out.
void consul_engine::relock(const mine& own, const lock_state& seen) {
  const auto keys = keys_of(how_.root, own->name);
  transaction out;
  {
    const auto lock = entries_.lock();
    out.check_index(own->key, own->modified);
    out.check_as_seen(keys.lock, seen.lock_index());
    out.lock(keys.lock, own->session, {}, lock_flags);
  }
  const std::weak_ptr<own_entry> weak{own};
  const question ask{question::verb::put, "/v1/txn", out.body()};
  agent_->ask_in_background(ask, removal_takes, [this, weak](const answer& said) {
    // Refused while there is a lock-delay, or not carried out at all: again, then. If another reader was faster its
    // folder has changed.
    const auto still = weak.lock();
    constexpr int done = 200, refused = 409;
    const bool is_delayed = said.got && said.got->status == refused &&
                            said.got->body.find("lock delay") != std::string::npos;
    if (!still || ending_ || (said.got && said.got->status == done)) return;
    if (said.got && said.got->status == refused && !is_delayed) return;
    agent_->at(std::chrono::steady_clock::now() + 500ms, [this, weak] {
      const auto holder = weak.lock();
      if (!holder || ending_) return;
      {
        const auto lock = entries_.lock();
        holder->is_watched = false;
      }
      watch_own(holder);
    });
  });
}

// ---- the end of a session

void consul_engine::on_session_over(const session_view& gone, std::string_view why) {
  std::vector<std::uint64_t> waiting;
  {
    const auto lock = entries_.lock();
    std::vector<mine> holders;
    for (const auto& [number, own] : entries_.all()) {
      if (own->number > gone.number || own->is == own_entry::state::releasing) continue;
      if (own->is == own_entry::state::holding) {
        holders.push_back(own);
      } else if (own->is == own_entry::state::waiting) {
        waiting.push_back(number);  // it comes again, to the end of the queue
        own->is = own_entry::state::asking;
        own->session.clear();
      }
    }
    for (const auto& own : holders) {
      own->is = own_entry::state::releasing;
      entries_.drop(*own);
    }
  }
  listener_.on_session_lost(gone.number, why);
  for (const auto number : waiting) waits_->look_again(number);
}

// One that had permits only.
void consul_engine::on_further_session_over(const std::string& id) {
  std::vector<mine> losers;
  {
    const auto lock = entries_.lock();
    for (const auto& [number, own] : entries_.all())
      if (std::ranges::find(own->permit_sessions, id) != own->permit_sessions.end())
        losers.push_back(own);
  }
  for (const auto& own : losers)
    agent_->run_soon([this, own] { lose(own, "the session of one of its permits has ended"); });
}

}  // namespace holdfast::engines::consul
