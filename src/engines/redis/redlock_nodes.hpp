// The masters of a Redlock: asked all at the same time, over one reactor.
//
// A node that was restarted may have forgotten for whom it voted. So each connection begins with INFO, which says for
// how long the node has been up, and it has no vote until every lock that it may have forgotten is over.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/redis/connections.hpp"
#include "engines/redis/settings.hpp"
#include "engines/redis/subscriptions.hpp"
#include "engines/redis/waits.hpp"
#include "support/parker.hpp"

#include <holdfast/engine.hpp>

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

class redlock_node final : private net::channel_listener {
 public:
  // `quarantine`: how long after its start it has no vote.
  static result<std::unique_ptr<redlock_node>> open(const settings& how, nanoseconds quarantine,
                                                    net::reactor& on);
  ~redlock_node() { close(); }

  // From then on nothing that is owed is sent; what the reactor has begun may still be on its way.
  void stop_paying() noexcept { *open_ = false; }
  void close() noexcept;  // as redlock_nodes; after stop_paying()

  connections& server() noexcept { return *connections_; }
  subscriptions& messages() noexcept { return *messages_; }
  waits& listeners() noexcept { return *waits_; }
  const settings& how() const noexcept { return how_; }

  // How long it still has no vote; 0: it has one. A node that was never reached has one: nothing is known against it.
  nanoseconds without_vote(steady_time now) const noexcept;
  // It left the last question unanswered: others do not wait for it.
  bool is_silent() const noexcept { return silent_.load(std::memory_order_relaxed); }
  void note(const result<answer>& got) noexcept;

  // Something that may still be there and could not be taken away: it is tried again when the node is reached, until
  // it has ended by itself.
  void owe(std::string_view name, const command& what, steady_time until);

  // Which server this is; 0: not known yet.
  std::uint64_t identity() const noexcept { return identity_.load(); }
  // Our user may not listen there: waiters do not try again.
  bool is_deaf() const noexcept { return deaf_.load(std::memory_order_relaxed); }
  void go_deaf() noexcept { deaf_.store(true, std::memory_order_relaxed); }

 private:
  redlock_node(const settings& how, nanoseconds quarantine, net::reactor& on)
      : how_(how), quarantine_(quarantine), reactor_(on) {}
  result<void> connect();
  void introduced(const resp::value& info);
  void on_push(std::string_view frame) noexcept override { messages_->on_push(frame); }
  void on_up(std::uint64_t generation) noexcept override;
  void on_down(const error& why) noexcept override;

  struct debt {
    std::string name;
    command what;
    steady_time until;
  };
  void pay_later();
  void pay_all();
  void pay(debt what);

  const settings how_;
  const nanoseconds quarantine_;
  net::reactor& reactor_;
  // False when it closes. What is posted has a share in it, because the reactor may run that later.
  const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(true);
  std::atomic<std::uint64_t> identity_{0};
  std::atomic<bool> deaf_{false};
  std::atomic<steady_time> votes_from_{steady_time::min()};
  std::atomic<bool> silent_{false};
  std::mutex guard_;
  std::deque<debt> debts_;
  bool pays_later_ = false;
  std::unique_ptr<waits> waits_;
  std::unique_ptr<subscriptions> messages_;
  std::unique_ptr<connections> connections_;  // goes first: its thread uses everything above
};

// The answers by node; nothing: it was not asked, or had not answered when the outcome was known. A server that is
// reached under two addresses answers once; its second answer is an error.
using ballots = std::vector<std::optional<result<answer>>>;

class redlock_nodes {
 public:
  static result<std::unique_ptr<redlock_nodes>> open(const std::vector<settings>& hows,
                                                     nanoseconds quarantine);
  ~redlock_nodes() { close(); }
  // Waits until the nodes have read what was sent; from then on nothing is sent, and nothing calls back. The reactor
  // stays.
  void close() noexcept;

  std::size_t size() const noexcept { return all_.size(); }
  std::size_t quorum() const noexcept { return all_.size() / 2 + 1; }
  redlock_node& operator[](std::size_t i) noexcept { return *all_[i]; }
  net::reactor& driver() noexcept { return *reactor_; }
  // It is not too young, and no earlier one is the same server under another address.
  bool has_vote(std::size_t i, steady_time now) const noexcept;

  // What a question to the nodes is made of. `what` by node; nothing: that one is not asked.
  struct question {
    std::string name;
    std::vector<std::optional<command>> what{};
    // Is the outcome known, whatever the others will say? They are not waited for then, nor are silent nodes once all
    // others have answered.
    std::function<bool(const ballots&)> is_decided{};
    // An answer that came after the outcome. On the reactor's thread.
    std::function<void(std::size_t node, const result<answer>&)> on_late{};
    bool over_stream = false;  // renewals: nothing else waits in front of them
    std::size_t asked() const {
      return static_cast<std::size_t>(
          std::ranges::count_if(what, [](const auto& one) { return one.has_value(); }));
    }
  };
  class asking;
  // co_await: ballots. Each node is given until `until`.
  asking ask(question about, const call& until, const invocation& how);
  // The same, and nothing is waited for: on_late hears every answer.
  void send(question about, const call& until);

 private:
  redlock_nodes() = default;
  class round;

  std::unique_ptr<net::reactor> reactor_;
  std::atomic<bool> closes_{false};
  std::vector<std::unique_ptr<redlock_node>> all_;  // goes first
};

// One question under way. It lives until every node has answered, or was given up.
class redlock_nodes::round : public std::enable_shared_from_this<round> {
 public:
  // `judges_silence`: a node that does not answer in time has had the time that nodes are given.
  round(redlock_nodes& in, question about, bool is_awaited = true, bool judges_silence = true);
  // True: the outcome is known already. Else `go_on` is called, once, when it is.
  bool begin(const call& until, std::function<void()> go_on);
  ballots take() { return std::move(got_); }

 private:
  void answered(std::size_t node, result<answer> got);
  bool has_answered_elsewhere(std::size_t node) const;
  bool is_over() const;

  const bool judges_silence_;
  redlock_nodes& in_;
  question about_;
  std::stop_token stop_;
  std::mutex guard_;
  ballots got_;
  std::vector<bool> owed_;  // asked, and not answered yet
  std::function<void()> go_on_;
  bool starting_ = true, over_ = false;
};

class redlock_nodes::asking {
 public:
  asking(redlock_nodes& in, question about, const call& until, const invocation& how)
      : round_(std::make_shared<round>(in, std::move(about), true,
                                       until.deadline < how.limits.deadline)),
        until_(until),
        blocks_(how.blocks) {}
  bool await_ready() {
    if (!blocks_) return false;
    support::parker done;
    if (!round_->begin(until_, [&done] { done.set(1); })) done.wait(steady_time::max());
    return true;
  }
  bool await_suspend(std::coroutine_handle<> caller) {
    // The caller may go on, and this object may be gone, before begin() returns.
    const auto keep = round_;
    return !keep->begin(until_, [caller] { caller.resume(); });
  }
  ballots await_resume() { return round_->take(); }

 private:
  const std::shared_ptr<round> round_;
  const call until_;
  const bool blocks_;
};

inline redlock_nodes::asking redlock_nodes::ask(question about, const call& until,
                                                const invocation& how) {
  return asking{*this, std::move(about), until, how};
}

}  // namespace holdfast::engines::redis
