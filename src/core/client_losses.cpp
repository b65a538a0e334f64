// What the store tells a client unasked: grants that are gone, sessions that are over, how late a session was proven.
#include "core/client_core.hpp"
#include "core/hold.hpp"
#include "core/renewal.hpp"

#include <algorithm>
#include <iterator>

namespace holdfast::core {

// One look at every hold, however many were lost: a session that ends takes thousands of leases along. What no hold has
// is noted, and looked for once more: a hold that gets its grant meanwhile either is seen by the second look or sees
// the note.
void client_core::on_lost(std::span<const owner_id> owners, std::string_view why) noexcept {
  const background_thread mark;
  std::vector<owner_id> sorted{owners.begin(), owners.end()};
  std::ranges::sort(sorted);
  const auto unknown = lose_those(sorted, why);
  if (unknown.empty()) return;
  early_losses_.note(unknown, why, clock_->now(), 2 * options_.call_timeout);
  lose_those(unknown, why);
}

bool client_core::note_proof(const session_proof& proof) noexcept {
  if (proof.number == 0) return false;
  const std::lock_guard locked{proof_guard_};
  const auto before = latest_proof_;
  keep_later(latest_proof_, proof);
  return latest_proof_.number != before.number || latest_proof_.proven_at != before.proven_at;
}

void client_core::freshen(session_proof& of_grant) const noexcept {
  if (!has_sessions(*caps_)) return;
  const std::lock_guard locked{proof_guard_};
  if (latest_proof_.number == of_grant.number) keep_later(of_grant, latest_proof_);
}

// Noted first: a hold that gets its grant meanwhile either is seen here or sees the note.
void client_core::on_session_lost(std::uint64_t number, std::string_view why) noexcept {
  const background_thread mark;
  early_losses_.note_session(number, why);
  std::vector<std::shared_ptr<hold>> alive;
  live_holds(alive);
  for (const auto& h : alive) {
    const auto current = h->current_grant(std::nullopt);
    if (current && current->session.number != 0 && current->session.number <= number)
      h->lose(current->owner, why);
  }
}

// Returns those that no hold has.
std::vector<owner_id> client_core::lose_those(std::span<const owner_id> sorted,
                                              std::string_view why) {
  std::vector<std::shared_ptr<hold>> alive;
  live_holds(alive);
  std::vector<owner_id> found;
  for (const auto& h : alive) {
    const auto current = h->current_grant(std::nullopt);
    if (!current || !std::ranges::binary_search(sorted, current->owner)) continue;
    if (h->lose(current->owner, why)) found.push_back(current->owner);
  }
  std::ranges::sort(found);
  std::vector<owner_id> out;
  std::ranges::set_difference(sorted, found, std::back_inserter(out));
  return out;
}

}  // namespace holdfast::core
