// An engine with faults on demand, around a real one: for what a healthy store in the same process
// never shows.
#pragma once

#include <holdfast/client.hpp>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace holdfast::testing {

// Shared by the test and the engine. Numbers count down, one per call; flags stay until they are taken back.
struct faults {
  static constexpr int always = 1'000'000;

  std::atomic<int> drop_enter_replies{0};    // executed, answered outcome_unknown
  std::atomic<int> lose_enter_requests{0};   // not executed, answered outcome_unknown
  std::atomic<int> refuse_enters{0};         // not executed, answered unavailable
  std::atomic<int> deny_enter_number{0};     // that one: not executed, answered denied, for certain
  std::atomic<int> deny_enters{0};           // not executed, answered denied, for certain
  std::atomic<int> enters_out_of_memory{0};  // not executed, std::bad_alloc is thrown
  std::atomic<int> lose_entered{0};  // executed, and the loss is told before the grant is answered
  std::atomic<int> lose_downgraded{0};   // the same of downgrades
  std::atomic<int> garble_enters{0};     // executed, answered protocol
  std::atomic<bool> hang_enters{false};  // not executed, answered outcome_unknown at the deadline
  std::atomic<int> drop_release_replies{0};     // executed, answered outcome_unknown
  std::atomic<int> fail_settles{0};             // not executed, answered unavailable
  std::atomic<int> fail_leaves{0};              // not executed, answered unavailable
  std::atomic<int> drop_downgrade_replies{0};   // executed, answered outcome_unknown
  std::atomic<int> lose_downgrades{0};          // not executed, answered outcome_unknown
  std::atomic<int> refuse_downgrade_number{0};  // that one: not executed, answered unavailable
  std::atomic<int> nudge_awaits{0};             // "look again" although nothing happened
  std::atomic<bool> hide_losses{false};         // what the store tells unasked is not passed on
  std::atomic<bool> fail_renewals{false};       // not executed, answered unavailable
  std::atomic<int> hang_renewals{0};       // calls that are never answered while the client lives
  std::atomic<bool> drop_renewals{false};  // executed, answered outcome_unknown
  std::atomic<std::chrono::milliseconds> delay_renewals{std::chrono::milliseconds{0}};  // before
  std::atomic<std::chrono::milliseconds> delay_renewal_answers{std::chrono::milliseconds{0}};
  std::atomic<std::chrono::milliseconds> delay_enter_all_answers{std::chrono::milliseconds{0}};

  // A store with sessions that last so long; 0: without. Each answer proves the session with that number.
  nanoseconds session{};
  std::atomic<std::uint64_t> session_number{1};
  bool needs_heartbeats = false;             // as capabilities::session_needs_heartbeats
  std::atomic<bool> fail_heartbeats{false};  // renewals of nothing are answered unavailable
  std::atomic<std::chrono::milliseconds> proof_age{std::chrono::milliseconds{0}};  // of grants
  std::atomic<bool> renewals_prove_nothing{false};  // only heartbeats prove the session, as on etcd
  std::atomic<bool> hide_verdicts{false};           // renewals are answered, and say nothing
  std::function<void(std::uint64_t, std::string_view)> lose_session;  // set when it is opened

  std::atomic<int> enters{0}, settles{0}, renewals{0}, releases{0}, downgrades{0};  // calls seen
  std::atomic<int> heartbeats{0};  // renewals of nothing

  int renewals_of(const owner_id& owner) const {
    const std::lock_guard lock{guard};
    const auto at = renewed.find(owner);
    return at == renewed.end() ? 0 : at->second;
  }

  mutable std::mutex guard;
  std::map<owner_id, int> renewed;
};

// A client of the store at `url` whose engine obeys `plan`.
client open_flaky(std::string_view url, std::shared_ptr<faults> plan, client_options options = {});

}  // namespace holdfast::testing
