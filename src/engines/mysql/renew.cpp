// Renewals, heartbeats, and what a heartbeat finds revoked.
#include "engines/mysql/mysql_engine.hpp"

#include <algorithm>

namespace holdfast::engines::mysql {

using namespace std::chrono_literals;

result<session_proof> mysql_engine::renew(std::span<renewal> batch, const call& limits) {
  std::vector<std::uint64_t> revoked;
  auto proof = session_.renew(batch, limits, revoked);
  const bool any_revoked = !revoked.empty();
  const auto lost = not_told_yet(std::move(revoked));
  if (!lost.empty())
    core_.on_lost(lost, "it was revoked");  // before the proof, which would prolong them
  if (any_revoked) {
    if (!reads_revocations_.exchange(true))
      post([this] {
        read_revocations();
        reads_revocations_ = false;
      });
  }
  sweep_now_and_then();
  return proof;
}

// The news stays in the store until it is read and deleted; each heartbeat until then finds it again.
std::vector<owner_id> mysql_engine::not_told_yet(std::vector<std::uint64_t> revoked) {
  std::vector<owner_id> out;
  std::ranges::sort(revoked);
  const std::lock_guard lock{told_guard_};
  for (const auto number : revoked)
    if (!std::ranges::binary_search(told_, number)) out.push_back({client_, number});
  told_ = std::move(revoked);
  return out;
}

void mysql_engine::start_renew(std::span<renewal> batch, const call& limits,
                               completion<session_proof>& done) noexcept {
  const auto work = [this, batch, &limits, &done] { done.complete(renew(batch, limits)); };
  // However many coroutines ask for proof, upkeep has a thread of its own.
  if (std::ranges::any_of(batch, &renewal::must_ask)) return post(work);
  renewal_thread_.post(work);
}

// Where the listener does not, because this client has no waiter.
void mysql_engine::read_revocations() noexcept {
  call limits;
  limits.deadline = std::chrono::steady_clock::now() + 5s;
  auto on = plain_.take(limits, {});
  if (!on) return;
  const std::string_view me = session_.client();
  const auto mine = session_lock(me);
  const auto found = (*on)->ask(sql().news, {std::string_view{mine}, me});
  if (!found) return;
  std::vector<owner_id> lost;
  for (const auto& news : *found)
    if (is_revocation(news)) lost.push_back({client_, news.number(2)});
  if (lost.empty()) return;
  core_.on_lost(lost, "it was revoked");
  // Afterwards: a heartbeat that finds no revocation notice any more prolongs what core still believes in.
  for (const auto& news : *found)
    if (is_revocation(news))
      static_cast<void>((*on)->run(sql().delete_revocation, {news.bytes(1), me, news.number(2)}));
}

}  // namespace holdfast::engines::mysql
