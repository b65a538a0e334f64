// redlock: one lock over N independent masters. It is held while a majority of them has it.
//
// Taking it: all nodes are asked at once to SET NX PX (redlock_scripts.hpp). With a majority of votes and validity
// left, counted from before the first request, it is ours; else every vote is given back at once. An attempt has a
// value of its own, so what gives it back cannot touch the next one.
//
// Tokens: each node counts the votes of a name. The highest number among the votes is the token, once a majority has at
// least that: two majorities share a node, and what is voted there later is higher. Usually all have counted alike and
// the votes themselves are the majority; else the number is written first (raise_token).
//
// Waiters leave nothing in the store. They hear of a release on a channel of each node, and ask again anyway after a
// random pause that grows: other programs publish nothing.
//
// Clients that ask at the same time split the votes, and none has a majority. So a client keeps for each name how
// crowded it is: twice as much with each split vote that it sees, and half of that with every four votes that had a
// winner, whoever that was: if only the winner's window became shorter, it would win again and again, and the others
// never. One that hears of a release draws the time at which it asks from a window of that length. One that has
// released itself while others listened gives them a few milliseconds: it need not hear of it, and would be the first.
#pragma once

#include "engines/common/remote_engine.hpp"
#include "engines/redis/redlock_nodes.hpp"
#include "engines/redis/waits.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace holdfast::engines::redis {

struct redlock_settings {
  std::string url;  // safe to print
  std::string prefix;
  std::vector<settings> nodes;
  nanoseconds longest_ttl{};
  nanoseconds quarantine{};
  std::optional<nanoseconds> node_timeout;  // nothing: by the ttl
};
result<redlock_settings> read_redlock_settings(const store_url& url);

class redlock final : public remote_engine {
 public:
  static result<std::unique_ptr<engine>> open(redlock_settings how, const engine_config& config);
  ~redlock() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  bool contended(const grant&) const noexcept override { return true; }
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  redlock(redlock_settings how, const engine_config& config);

  operation<entered> do_enter(const request& ask, invocation how) override;
  operation<void> do_leave(const ticket& place, invocation how) override;
  operation<void> do_release(const grant& held, invocation how) override;
  operation<entered> do_settle(const request& ask, invocation how) override;
  operation<session_proof> do_renew(std::span<renewal> batch, invocation how) override;
  operation<grant> do_downgrade(const grant& held, lock_mode to, invocation how) override;
  operation<lock_info> do_inspect(std::string_view name, invocation how) override;
  operation<std::vector<lock_info>> do_list(std::string_view prefix, std::size_t limit,
                                            invocation how) override;
  operation<std::size_t> do_revoke(std::string_view name, invocation how) override;
  operation<counter> do_count(const counter_request& ask, invocation how) override;
  operation<std::vector<counter_info>> do_list_counters(std::string_view prefix, std::size_t limit,
                                                        invocation how) override;
  void end_await(const ticket& place) noexcept override {
    waits_->look_again(place.owner.sequence);
  }

  // What this client knows of an owner that asks, or holds.
  struct candidate {
    std::uint64_t attempt = 0;   // the last
    bool is_open = false;        // that one is neither given back nor released
    bool holds = false;          // its owner was told so
    std::vector<bool> in_doubt;  // by node: a request for a vote may still be delivered
    std::vector<bool> may_have;  // by node: a vote of the last attempt may be there
    unsigned pauses = 0;         // since it last heard something
    steady_time asks_at{};       // again
    bool has_drawn = false;      // that time from the window: no news changes it
    steady_time touched{};
    fencing_token token;
    std::vector<std::uint64_t> heard;  // by node, before its last attempt
  };
  // How many ask for a name, as far as this client notices.
  struct crowd {
    unsigned quarters = 0;       // of a doubling of the window
    bool is_waited_for = false;  // others listened for our last release
    steady_time split_at{};      // the last split vote
    steady_time released_at{};   // by this client
  };
  struct attempt {
    std::uint64_t number = 0;
    std::string value;
    std::vector<bool> asked;  // by node
    steady_time sent;
  };
  // none: it was certainly not asked for.
  enum class vote : std::uint8_t { yes, no, none, in_doubt };
  struct late_vote {
    std::string name;
    owner_id owner;
    std::uint64_t attempt = 0;
    nanoseconds ttl{};
  };
  // The votes of an attempt.
  struct tally {
    std::size_t yes = 0, no = 0, not_asked = 0;
    std::size_t most_alike = 0;     // of those that said no, for the same other holder
    std::uint64_t token = 0;        // the highest
    std::size_t have_token = 0;     // so many of the votes have it
    std::size_t refusals = 0;       // for good
    bool in_doubt = false;          // a request that failed may still be delivered
    bool is_given_up = false;       // a mark was found: this owner is over
    std::optional<error> why;       // of one that failed
    std::vector<nanoseconds> left;  // of the locks of others
  };
  // What became of taking an owner out of the nodes.
  struct ended {
    std::size_t freed = 0, gone = 0;
    bool is_waited_for = false;  // others listened
    std::optional<error> why;    // the others
  };
  // Of an owner that may hold.
  struct found_votes {
    std::string value;
    std::uint64_t token = 0;
    std::vector<nanoseconds> left;  // the longest first
    std::size_t others = 0;         // so many nodes have no vote for that value
  };

  std::string key(std::string_view name) const { return how_.prefix + std::string{name}; }
  std::string beside(std::string_view name, std::string_view what) const;
  // Where releases are told: to those who want the lock, and to those who only look. Apart, because one that releases
  // asks how many want it; with one ending, for which users have the right.
  std::string waiters_channel(std::string_view name) const { return beside(name, "free"); }
  std::string watchers_channel(std::string_view name) const {
    return beside(name, "watched:holdfast-free");
  }
  static std::string value_of(const owner_id& owner, std::uint64_t attempt);
  static std::uint64_t attempt_in(std::string_view value);
  std::int64_t token_kept(nanoseconds ttl) const;
  call node_call(const call& limits, nanoseconds ttl) const;
  redlock_nodes::question to_all(std::string_view name, const command& what) const;
  // So many say no that no majority can say yes.
  bool is_impossible(std::size_t no) const noexcept {
    return no > nodes_->size() - nodes_->quorum();
  }

  result<void> check(const request& ask) const;
  attempt begin_attempt(const request& ask);
  result<void> check_voters(std::string_view name, const attempt& now) const;
  redlock_nodes::question vote_question(const request& ask, const attempt& now);
  static vote vote_in(const result<answer>& said);
  void on_late_vote(std::size_t node, const result<answer>& got, const late_vote& of);
  tally count_votes(const attempt& now, const ballots& got) const;
  void note_votes(const owner_id& owner, const ballots& got);
  redlock_nodes::question raise_question(std::string_view name, std::string_view value,
                                         std::uint64_t token, nanoseconds ttl) const;
  // Has a majority at least this token? It is written where it is not.
  operation<bool> raise_tokens(std::string_view name, std::string value, std::uint64_t token,
                               nanoseconds ttl, invocation how);
  operation<entered> try_once(const request& ask, bool& is_split, invocation how);
  operation<entered> fail(const request& ask, attempt now, ballots got, tally votes,
                          invocation how);
  entered granted(const request& ask, std::uint64_t number, fencing_token token, steady_time from);
  entered refused(const request& ask, const tally& votes);
  steady_time ask_again_at(const request& ask, const tally& votes);
  // REQUIRES: guard_ is held. How long the window of a name is; 0: nobody else is known to ask.
  nanoseconds window_of(std::string_view name, steady_time now) const;
  // The time at which it may ask, when that is not now.
  std::optional<steady_time> turn_of(const request& ask, const call& limits);
  void note_split(std::string_view name);
  void note_decided(std::string_view name);  // somebody has a majority
  void note_released(std::string_view name);
  void note_listeners(std::string_view name, bool are_there);
  void sweep(steady_time now);  // REQUIRES: guard_ is held

  // redlock_end.cpp
  command give_back_command(std::string_view name, const std::string& value, bool marks) const;
  std::function<void(std::size_t, const result<answer>&)> owing(std::string_view name, command debt,
                                                                nanoseconds ttl);
  redlock_nodes::question give_back_question(const request& ask, const attempt& now,
                                             const ballots& got, const std::vector<bool>& in_doubt);
  // True: every node has confirmed it.
  operation<bool> give_votes_back(const request& ask, const attempt& now, const ballots& got,
                                  bool awaited, invocation how);
  // `without`: so many nodes were not asked, because they have nothing.
  static ended sum_of_ended(const ballots& got, std::size_t without);
  bool is_waited_for(std::string_view name, const ballots& got);
  redlock_nodes::question release_question(std::string_view name, const owner_id& owner,
                                           const std::optional<candidate>& known, nanoseconds ttl,
                                           bool marks);
  operation<ended> end_owner(std::string_view name, owner_id owner, nanoseconds ttl, bool marks,
                             invocation how);
  found_votes find_votes(const ballots& got, const std::string& own) const;
  operation<entered> settle_holder(const request& ask, std::optional<candidate> known,
                                   invocation how);
  operation<entered> settle_as_nothing(const request& ask, invocation how);
  command renew_command(std::span<const renewal> some) const;
  renewal::verdict verdict_of(const ballots& got, std::size_t which) const;
  redlock_nodes::question renew_question(std::span<const renewal> batch) const;

  // `refusals`: so many nodes refused for good.
  error too_few(std::string_view name, const std::optional<error>& why, std::size_t refusals) const;
  error too_few(std::string_view name, const ballots& got) const;
  not_done unsupported(std::string_view name, std::string_view what) const;
  std::optional<candidate> find(const owner_id& owner) const;
  void forget(const owner_id& owner);
  std::vector<std::uint64_t> heard_so_far(const std::string& on);
  // Until a majority of the nodes has spoken of a release, or has begun to tell us; limits.deadline at the latest.
  // `heard`: how much it had been before.
  void listen(const std::string& on, std::uint64_t id, const std::vector<std::uint64_t>& heard,
              const call& limits, std::function<void()> over);

  // redlock_views.cpp
  // `is_agreed`: a majority has the same token.
  result<lock_info> read_views(std::string_view name, const ballots& got, bool& is_agreed) const;
  class watching;

  const redlock_settings how_;
  const class clock& clock_;
  const capabilities caps_;
  std::atomic<bool> ending_{false};
  std::atomic<std::uint64_t> last_attempt_{0};
  std::atomic<std::uint64_t> last_watch_{std::uint64_t{1} << 63U};
  mutable std::mutex guard_;
  std::unordered_map<std::uint64_t, candidate> candidates_;  // by the sequence of the owner
  std::map<std::string, crowd, std::less<>> crowds_;         // by name
  steady_time swept_at_{};
  std::unique_ptr<redlock_nodes> nodes_;
  std::unique_ptr<waits> waits_;  // on the nodes' reactor
};

}  // namespace holdfast::engines::redis
