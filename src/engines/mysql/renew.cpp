// Renewals, heartbeats, and what a heartbeat finds revoked.
#include "engines/mysql/mysql_engine.hpp"

namespace holdfast::engines::mysql {

using namespace std::chrono_literals;

result<session_proof> mysql_engine::renew(std::span<renewal> batch, const call& limits) {
  std::vector<std::uint64_t> revoked;
  auto proof = session_.renew(batch, limits, revoked);
  if (!revoked.empty()) {
    // Before the proof, which would prolong them.
    std::vector<owner_id> lost;
    for (const auto number : revoked) lost.push_back({client_, number});
    core_.on_lost(lost, "it was revoked");
    if (!reads_revocations_.exchange(true))
      post([this] {
        read_revocations();
        reads_revocations_ = false;
      });
  }
  sweep_now_and_then();
  return proof;
}

void mysql_engine::start_renew(std::span<renewal> batch, const call& limits,
                               completion<session_proof>& done) noexcept {
  renewal_thread_.post([this, batch, &limits, &done] { done.complete(renew(batch, limits)); });
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
