// The members of one etcd cluster, as one client talks to them: a connection to each that was needed so far, requests
// to the member that answered last, and to the next when it does not (retry_policy.hpp). Logs in, and again when the
// login has become old. Knows nothing of locks.
//
// Thread-safe. What is started completes on the reactor's thread, or at once.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/etcd/errors.hpp"
#include "engines/etcd/settings.hpp"
#include "grpc/channel.hpp"
#include "net/reactor.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::etcd {

struct question {
  std::string_view method;
  std::string body;
  bool repeatable = true;  // asked twice, it has the effect of once
  bool at_once = false;    // the caller's thread writes, although it does not wait
};

// What came of a question, beside the answer itself.
struct answer {
  result<grpc::reply> got;
  bool repeated = false;  // an earlier try may have been executed, too
};

class cluster {
 public:
  static result<std::unique_ptr<cluster>> start(const settings& how);
  ~cluster() { stop(); }
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;
  // Everything that is under way completes, then all connections and the reactor end. What is asked afterwards is
  // refused.
  void stop() noexcept;

  answer run(const question& what, const call& limits);

  class handler {
   public:
    virtual void on_answer(answer what) noexcept = 0;

   protected:
    ~handler() = default;
  };
  // `what` and `limits` stay alive until the handler was told. No more than `most_in_flight` are sent at a time; the
  // others wait for their turn, in order, until their deadline or stop.
  void post(const question& what, const call& limits, handler& done) noexcept;

  // With no verb that waits for it: `done` is told once, on the reactor's thread or at once.
  using on_told = std::function<void(const answer&)>;
  static constexpr nanoseconds answered_within = std::chrono::seconds{3};  // for most of them
  void ask_in_background(question what, nanoseconds patience, on_told done) noexcept;
  // The answer does not matter; tried for ten seconds.
  void send_off(question what) noexcept;

  // co_await: run or post, as the invocation says.
  class asking;
  asking ask(const question& what, const invocation& how) noexcept;

  // Of one member, without another try. For doctor.
  result<grpc::reply> run_at(std::size_t member, const question& what, const call& limits);

  net::reactor& driver() noexcept { return *reactor_; }
  const settings& how() const noexcept { return how_; }
  std::size_t size() const noexcept { return how_.where.size(); }
  // Where streams should be opened, and with what. `rotate`: this member did not do.
  std::size_t current() const noexcept { return current_.load(std::memory_order_relaxed); }
  void rotate(std::size_t from) noexcept;
  std::shared_ptr<grpc::channel> channel(std::size_t member);
  grpc::header_list stream_headers() const;
  bool can_login() const noexcept { return !how_.user.empty(); }
  bool is_auth_off() const noexcept { return auth_off_.load(std::memory_order_relaxed); }
  // ok also where the cluster knows no users.
  result<void> log_in(const call& limits);
  // The same without waiting; the next request that is refused tries again if it fails.
  void log_in_soon() noexcept;

 private:
  class sending;
  explicit cluster(const settings& how) : how_(how), channels_(how.where.size()) {}
  grpc::header_list headers() const;
  result<void> note_login(const result<grpc::reply>& got);
  std::string login_request() const;
  void begin_pause(sending& request);
  void request_done() noexcept;
  // The thread that takes a request out of queue_ goes on with it.
  void enqueue(sending& request);
  sending* take_from_queue(std::uint64_t number);
  void give_up(std::uint64_t number) noexcept;

  const settings how_;
  std::unique_ptr<net::reactor> reactor_;
  std::atomic<std::size_t> current_{0};
  std::atomic<bool> auth_off_{false};

  mutable std::mutex guard_;
  bool stopping_ = false;
  std::vector<std::shared_ptr<grpc::channel>> channels_;
  std::string token_;
  std::set<sending*> pausing_;
  std::size_t in_flight_ = 0;
  std::uint64_t last_queued_ = 0;
  std::map<std::uint64_t, sending*> queue_;  // in the order in which they came
};

class cluster::asking final : private handler {
 public:
  asking(cluster& in, const question& what, const invocation& how) noexcept
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
  cluster& in_;
  const question& what_;
  const invocation& how_;
  std::coroutine_handle<> caller_{};
  std::optional<answer> got_{};
};

inline cluster::asking cluster::ask(const question& what, const invocation& how) noexcept {
  return asking{*this, what, how};
}

}  // namespace holdfast::engines::etcd
