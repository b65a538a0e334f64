// The leases that this service holds for its clients.
//
// A lease is kept by its client, who renews it; by a connection (:hold), or by a process of this machine (pid). The
// library renews all of them in the store, so here is only the other half: who has not been heard of in time loses it.
#pragma once

#include "events.hpp"
#include "http.hpp"
#include "keys.hpp"
#include "limits.hpp"
#include "metrics.hpp"
#include "state.hpp"

#include <holdfast/client.hpp>
#include <holdfast/clock.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/task.hpp>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace holdfast::server {

enum class kept_by : std::uint8_t { client, connection, process };

// What a lease is to its client, apart from the grant itself.
struct lease_terms {
  std::string label{};
  std::uint64_t permits = 0, of = 0;  // of a semaphore
  std::chrono::nanoseconds ttl{};
  std::chrono::nanoseconds longest_ttl = ttl;  // with which the store was asked
  kept_by by = kept_by::client;
  std::string request{};  // hash of its request_id
};

struct held_lease;
// When which lease is to be looked at, each once at most.
using agenda = std::multimap<steady_time, held_lease*>;

struct held_lease : std::enable_shared_from_this<held_lease> {
  std::string id;
  // As the table knows it: a lease that was lost has no owner any more, and one that is upgraded has another token.
  owner_id owner;
  std::uint64_t token = 0;
  // Before an upgrade.
  std::vector<std::string> earlier_ids{};
  std::vector<std::uint64_t> earlier_sequences{};
  lease grant;
  const key* who = nullptr;  // null: adopted, and not asked about yet
  std::string name;
  lease_terms terms;
  steady_time since, ends_at;
  limits::place place;
  std::unique_ptr<timer> process{};
  limits::place process_place{};
  // Called once, when it ends otherwise than by its release.
  std::function<void(std::string_view why)> on_lost{};
  // Of those that are kept by a connection: it, and what is called in each third of the ttl.
  std::weak_ptr<event_stream> keeper{};
  std::function<void()> on_upkeep{};
  // Set while an upgrade waits for the readers to go: asks it to give up. As long as it waits, its connection keeps the
  // lease, for its own client waits with it.
  std::function<void()> stop_upgrade{};
  std::optional<agenda::iterator> appointment{};
  // One operation on the lease at a time.
  bool is_in_use = false;
  bool is_over = false;
  bool is_left = false;  // to the next service
  // A thread of the pool has the grant, which must not be looked at meanwhile.
  bool is_elsewhere = false;
  std::optional<std::string> loss_to_tell{};
  // Its time is over by the clock. What was received while the loop was busy is looked at first.
  bool is_suspect = false;
  std::deque<std::coroutine_handle<>> next{};
  // Somebody up the stack resumes those of `next`.
  bool is_serving = false;
};

using lease_ptr = std::shared_ptr<held_lease>;

// The right to do something with a lease that suspends: co_await it, and keep it.
class lease_turn {
 public:
  // So many requests of clients may stand in line. Those whose clients have gone stay there until it is their turn.
  static constexpr std::size_t most_in_line = 32;
  explicit lease_turn(lease_ptr of) : of_(std::move(of)) {}
  lease_turn(const lease_turn&) = delete;
  lease_turn& operator=(const lease_turn&) = delete;
  ~lease_turn();
  bool await_ready() const noexcept { return !of_->is_in_use; }
  void await_suspend(std::coroutine_handle<> who) { of_->next.push_back(who); }
  void await_resume() noexcept { of_->is_in_use = is_mine_ = true; }

 private:
  lease_ptr of_;
  bool is_mine_ = false;
};

class lease_table {
 public:
  lease_table(loop& on, client store, state_folder& state, event_hub& events, numbers& counts);
  lease_table(const lease_table&) = delete;
  lease_table& operator=(const lease_table&) = delete;

  // Null when the store has ended it already.
  lease_ptr add(lease grant, const key& who, lease_terms terms, limits::place place,
                steady_time asked_at);
  // Null: there is none, or it is another key's.
  lease_ptr find(std::string_view id, const key& who);
  // One that is over, as long as it is remembered; or null.
  struct ended {
    const key* who;
    std::string why;  // it was lost; "": its client has released it
    std::string name;
    std::uint64_t token = 0;
    bool is_unsure = false;  // whether the store has heard of the release
  };
  ended* find_ended(std::string_view id, const key& who);

  // How long its client may count on it, from `from` on (of the steady clock).
  std::chrono::nanoseconds valid(const held_lease& which, steady_time from) const;
  // Its client was heard of: it has another ttl from `now` on.
  static void renewed(held_lease& which, steady_time now) noexcept;
  // An upgrade: another grant, and so another id. The old id goes on working. A grant that was lost already is told so.
  // False: it is over.
  bool changed(const lease_ptr& which);
  // Gives it back. `why` is told to those who ask later, and empty when its client wanted it so.
  task<result<void>> end(lease_ptr which, std::string why);
  // The same, if its client has still not been heard of when it is the turn of that.
  task<> expire(lease_ptr which);
  // The store, or the clock, has ended it.
  void lost(const lease_ptr& which, std::string_view why);
  void lost(std::string_view name, fencing_token token, std::string_view why);

  // What the predecessor left in the store. Blocks; before the service listens.
  void adopt_all();
  // The service ends. What a connection keeps is over, and is given back by the next call; what is kept otherwise stays
  // in the store for the next service.
  void leave_all();
  // The loop has ended, and with it the connections. Blocks. False: clients have been told to count on leases that this
  // store would end together with our session, so it must not be said goodbye to.
  bool give_back_all();

  std::size_t size() const noexcept { return all_.size(); }
  std::size_t adopted() const noexcept { return unclaimed_.size(); }
  // The client half of our owner ids.
  const std::array<std::uint64_t, 2>& own() const noexcept { return own_; }
  template <class Visitor>
  void for_each(Visitor visit) const {
    for (const auto& [id, which] : all_)
      if (id == which->id) visit(*which);
  }
  state_folder& state() noexcept { return state_; }

  // What a request_id was answered with. Without leases: not all of it is held any more.
  struct answered {
    std::string question;  // hash
    std::vector<lease_ptr> leases;
  };
  std::optional<answered> of_request(const std::string& hash, const key& who);
  void note_request(const std::string& hash, const std::string& question,
                    const std::vector<lease_ptr>& got);

 private:
  // Kept for a while when the leases have ended: a request that comes once more must not take the lock for nobody.
  struct request_note {
    std::string question;
    std::vector<std::uint64_t> sequences;
    std::optional<steady_time> ended_at{};
  };
  lease_ptr make(lease grant, lease_terms terms, limits::place place, steady_time asked_at);
  void forget(const lease_ptr& which, std::string why);
  void end_request(const std::string& hash, const key* who);
  void prune(const key* of);
  void none_unclaimed() noexcept;
  bool adopt_one(const lock_info& lock, const holder_info& holder);
  task<result<void>> end_now(lease_ptr which, std::string why);
  result<void> how_it_ended(const held_lease& which) const;
  void claim(const lease_ptr& which, const key& who);
  lease_ptr find_unclaimed(const std::string& id, const key& who);
  void compact_journal();
  void appoint(held_lease& which, steady_time at);
  void cancel_appointment(held_lease& which) noexcept;
  void keep_appointments();
  void visit_one(const lease_ptr& which, steady_time now);

  loop& loop_;
  client store_;
  state_folder& state_;
  event_hub& events_;
  numbers& counts_;
  std::array<std::uint64_t, 2> own_;
  std::unordered_map<std::string, lease_ptr> all_;  // by id; an upgraded one by each of its ids
  std::map<std::pair<std::string, std::uint64_t>, std::weak_ptr<held_lease>> by_token_;
  std::unordered_map<std::uint64_t, std::weak_ptr<held_lease>> by_sequence_;
  // Adopted; whose they are shows when one asks with its key.
  std::unordered_set<lease_ptr> unclaimed_;
  std::unordered_map<std::string, std::pair<const key*, std::weak_ptr<held_lease>>> candidates_;
  std::vector<const key*> claimed_for_;
  std::unordered_map<std::string, ended> ended_;
  std::unordered_map<std::string, request_note> requests_;  // by hash
  // What has ended, in order: of each key, so that none makes those of another be forgotten early. Null: of the
  // predecessor.
  using in_order = std::deque<std::pair<steady_time, std::string>>;
  struct remembered {
    in_order leases, requests;
  };
  std::map<const key*, remembered> remembered_;
  steady_time pruned_at_{};
  agenda appointments_;
  std::vector<lease_ptr> to_give_back_, to_abandon_;  // by leave_all()
  const clock& time_;                                 // of valid_until()
  std::unique_ptr<timer> alarm_;
  steady_time alarm_at_ = steady_time::max();
};

}  // namespace holdfast::server
