// The agents of one Consul datacenter, as one client talks to them: HTTP/1.1 by libcurl. Requests go to the agent that
// answered last, and to the next when it does not (retry_policy.hpp). Knows nothing of locks.
//
// A blocking caller uses a connection of its own, on its own thread. Everything else is carried by one thread with one
// curl multi handle: what is posted, the blocking queries of all waiters, and timers. Callbacks come on that thread.
//
// Thread-safe where nothing else is said. Redirects are never followed: they would lead to another key. Proxies of the
// environment are not used. The ACL token goes by header, and is in no sentence.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/common/retry_policy.hpp"
#include "engines/consul/settings.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace holdfast::engines::consul {

struct question {
  enum class verb : std::uint8_t { get, put };
  // Whose turn is next among those that are posted. What proves that a session lives never waits behind the work: that
  // of the main session, on which all leases rest, not behind the others either.
  enum class rank : std::uint8_t { main_proof, proof, work };
  verb how = verb::put;
  std::string path;        // "/v1/txn?consistent"; a datacenter is added by the agent
  std::string body{};      // of a put
  bool repeatable = true;  // asked twice, it has the effect of once
  rank before = rank::work;
};

struct http_reply {
  int status = 0;
  std::uint64_t index = 0;  // X-Consul-Index; 0: none
  std::string body{};
};

// What came of a question, beside the answer itself. An HTTP status of any kind is an answer, except those that
// fate_of() calls overloaded or no_leader, which are tried again while there is time, and then answers as well.
// error unavailable (not_done): certainly not executed. outcome_unknown: perhaps.
struct answer {
  result<http_reply> got;
  bool repeated =
      false;  // an earlier try, or libcurl's own on a stale connection, may have been executed, too
};

// 429 and 503 are overloaded; a 500 that says "No cluster leader" is no_leader, before anything was done, and one that
// finds a session too short is an answer; any other 5xx may have been executed, and is unanswered.
retry_policy::fate fate_of(const result<http_reply>& got);

class http_setup;

class agent {
 public:
  static result<std::unique_ptr<agent>> start(const settings& how);
  ~agent();
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;
  // Everything that is under way completes (unavailable, or outcome_unknown where it was sent), timers that are not due
  // are dropped, then the thread ends. What is asked afterwards is refused. Not to be called on the agent's own thread.
  void stop() noexcept;

  answer run(const question& what, const call& limits);

  class handler {
   public:
    virtual void on_answer(answer what) noexcept = 0;

   protected:
    ~handler() = default;
  };
  // `what` and `limits` stay alive until the handler was told. A bounded number is sent at a time; the others wait for
  // their turn, in the order of rank and arrival, until their deadline or stop.
  void post(const question& what, const call& limits, handler& done) noexcept;

  // With no verb that waits for it: `done` is told once, on the agent's thread or at once.
  using on_told = std::function<void(const answer&)>;
  void ask_in_background(question what, nanoseconds patience, on_told done) noexcept;

  // co_await: run or post, as the invocation says.
  class asking;
  asking ask(const question& what, const invocation& how) noexcept;

  // Of one agent, without another try. For doctor.
  result<http_reply> run_at(std::size_t member, const question& what, const call& limits);

  // A blocking query: a get of `path` (with index= and wait= in it) that the server answers when something changes. One
  // try at the current agent, on a connection that serves nothing else meanwhile; `patience` should be longer than the
  // wait that was asked for. `done` is told once, unless it is cancelled. These do not count among posted requests.
  using query_id = std::uint64_t;
  using on_reply = std::function<void(result<http_reply>)>;
  query_id listen(std::string path, nanoseconds patience, on_reply done) noexcept;
  // It does not come any more, except when it is just being told on the agent's thread.
  void cancel_listening(query_id which) noexcept;
  std::size_t listening() const noexcept;

  // On the agent's thread: soon, or then. What is not due when the agent stops is dropped.
  using timer_id = std::uint64_t;
  void run_soon(std::function<void()> work) noexcept;
  timer_id at(steady_time when, std::function<void()> work);
  void cancel(timer_id which);

  const settings& how() const noexcept { return how_; }
  std::size_t size() const noexcept { return how_.where.size(); }
  std::size_t current() const noexcept { return current_.load(std::memory_order_relaxed); }
  // This agent did not do.
  void rotate(std::size_t from) noexcept {
    current_.compare_exchange_strong(from, (from + 1) % size(), std::memory_order_relaxed);
  }

 private:
  class loop;
  class connection_pool;
  explicit agent(const settings& how);

  const settings how_;
  const std::uint64_t born_;  // in a forked child there is no thread to wait for
  std::atomic<std::size_t> current_{0};
  std::unique_ptr<const http_setup> setup_;
  std::unique_ptr<connection_pool> connections_;  // of blocking callers
  std::unique_ptr<loop> loop_;
};

class agent::asking final : private handler {
 public:
  asking(agent& in, const question& what, const invocation& how) noexcept
      : in_(in), what_(what), how_(how) {}
  bool await_ready() {
    if (how_.blocks) got_.emplace(in_.run(what_, how_.limits));
    return how_.blocks;
  }
  void await_suspend(std::coroutine_handle<> caller) noexcept {
    caller_ = caller;
    in_.post(what_, how_.limits, *this);
  }
  answer await_resume() { return std::move(*got_); }

 private:
  void on_answer(answer what) noexcept override {
    got_.emplace(std::move(what));
    caller_.resume();
  }
  agent& in_;
  const question& what_;
  const invocation& how_;
  std::coroutine_handle<> caller_{};
  std::optional<answer> got_{};
};

inline agent::asking agent::ask(const question& what, const invocation& how) noexcept {
  return asking{*this, what, how};
}

}  // namespace holdfast::engines::consul
