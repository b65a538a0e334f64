// Renewals, heartbeats, and the end of a session.
#include "engines/etcd/etcd_engine.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

// Held is what we know to hold, under the lease that was just proven: the watches tell us of a key of ours that goes.
void etcd_engine::conclude_renewal(std::span<renewal> batch, const lease_view& now) {
  const auto time = clock_.now();
  for (auto& renewed : batch) {
    const auto mine = entries_.find(renewed.held->owner);
    renewed.answer = renewal::verdict::lost;
    if (!mine) continue;
    const auto lock = entries_.lock();
    if (mine->is != own_entry::state::holding || mine->lease != now.id) continue;
    renewed.answer = renewal::verdict::held;
    renewed.valid_from = time;
    renewed.session = now.proof(caps_.longest_validity);
    mine->until = time + renewed.held->ttl;
  }
}

// Proof: that the session lives, and that each very key is there.
operation<session_proof> etcd_engine::do_renew(std::span<renewal> batch, invocation how) {
  const auto proven = co_await session_->proven_since(clock_.now(), how);
  if (!proven) co_return proven.error();
  conclude_renewal(batch, *proven);
  static_cast<void>(co_await confirm(batch, how));
  co_return proven->proof(caps_.longest_validity);
}

// Of those that seem to be held: are their keys there? Some at a time; what could not be asked is unknown.
operation<void> etcd_engine::confirm(std::span<renewal> batch, invocation how) {
  std::vector<std::pair<renewal*, own_entries::ref>> held;
  for (auto& renewed : batch)
    if (renewed.answer == renewal::verdict::held)
      if (const auto mine = entries_.find(renewed.held->owner)) held.emplace_back(&renewed, mine);
  for (std::size_t from = 0; from < held.size(); from += most_at_once) {
    const std::span some{held.data() + from, std::min(most_at_once, held.size() - from)};
    std::vector<stored> keys;
    {
      const auto lock = entries_.lock();
      for (const auto& [asked, mine] : some) keys.push_back({mine->key, mine->created});
    }
    auto ask = ask_for_keys(keys);
    const auto got = co_await transact(std::move(ask), some.front().second->name, {}, how);
    const auto there = got ? are_there(keys, got->said) : std::nullopt;
    for (std::size_t i = 0; i < some.size(); ++i) {
      auto& [asked, mine] = some[i];
      if (there && (*there)[i]) continue;
      asked->answer = there ? renewal::verdict::lost : renewal::verdict::unknown;
      if (there) cluster_->driver().post([this, gone = mine] { watch_manager_->is_missing(gone); });
    }
  }
  co_return result<void>{};
}

// Upkeep, unless proof is asked for: we hear of it when a key of ours is removed, and the store does not know the ttl.
// So what is known of the session says enough about a lease; a heartbeat asks for a new proof.
void etcd_engine::start_renew(std::span<renewal> batch, const call& limits,
                              completion<session_proof>& done) noexcept {
  if (std::ranges::any_of(batch, &renewal::must_ask))
    return remote_engine::start_renew(batch, limits, done);
  const auto known = session_->current();
  if (known && !batch.empty()) {
    conclude_renewal(batch, *known);
    return done.complete(known->proof(caps_.longest_validity));
  }
  if (batch.empty() && !known) return done.complete(session_proof{});
  session_->prove(clock_.now(), limits.deadline, [this, batch, &done](result<lease_view> what) {
    if (!what) return done.complete(std::move(what).error());
    conclude_renewal(batch, *what);
    done.complete(what->proof(caps_.longest_validity));
  });
}

void etcd_engine::on_lease_gone(const lease_view& gone, std::string_view why) noexcept {
  std::vector<std::uint64_t> waiting;
  {
    const auto lock = entries_.lock();
    std::vector<own_entries::ref> holders;
    for (const auto& [number, entry] : entries_.all()) {
      if (entry->lease != gone.id || entry->is == own_entry::state::releasing) continue;
      if (entry->is == own_entry::state::holding) {
        holders.push_back(entry);
      } else {
        waiting.push_back(number);
        entry->key.clear();  // it comes again, to the end of the queue
      }
    }
    for (const auto& entry : holders) {
      entry->is = own_entry::state::releasing;
      entries_.drop(*entry);
    }
  }
  watch_manager_->announce_session_lost(gone.number, std::string{why});
  for (const auto number : waiting) waits_->look_again(number);
}

}  // namespace holdfast::engines::etcd
