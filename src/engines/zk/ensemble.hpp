// The ensemble as one client talks to it: one session, over one connection at a time, to whichever server takes it.
// Knows nothing of locks.
//
// A connection that is lost is made anew, at the next server, and the session goes on there by its id and password;
// only the ensemble ends a session, and a server says so when we come back. Answers come in the order of the requests.
// What was sent over an earlier connection of the session is carried out before anything that is sent over this one, or
// not at all: a server closes the session's earlier connection, and the leader refuses requests that come through a
// server from which the session has moved.
//
// What proves that the session lives. A server answers pings and reads out of its own memory, and one that is cut off
// from the others goes on doing so for a while, although the leader has ended our session. Only a change that a
// majority has agreed to is proof: each write of ours, or else one that changes nothing (batch::agree). The leader
// hears of us through our server, with each of its own pings, every half tick (a quarter of the shortest session), and
// then of what we sent before that; we send something every eighth of a session. So it may count from three eighths of
// a session before our write, and only three fifths of a session's time are believed in (believed_time()).
//
// Thread-safe. What is started completes on the reactor's thread, or at once.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/zk/batch.hpp"
#include "engines/zk/settings.hpp"
#include "jute/zookeeper.hpp"
#include "net/channel.hpp"
#include "net/reactor.hpp"

#include <holdfast/clock.hpp>
#include <holdfast/engine.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::zk {

// How long a session of that length may be believed in after it was proven.
constexpr nanoseconds believed_time(nanoseconds session) noexcept { return session / 5 * 3; }

struct session_view {
  std::uint64_t number = 0;  // of our sessions, from 1; 0: there is none
  std::int64_t id = 0;
  nanoseconds length{};  // as negotiated
  steady_time proven{};

  // For a client that believes for `longest` after a proof: a session may last less than the first one did.
  session_proof proof(nanoseconds longest) const noexcept {
    return {number, proven - std::max(nanoseconds::zero(), longest - believed_time(length))};
  }
};

// Told on the reactor's thread, without locks.
class ensemble_listener {
 public:
  virtual void on_event(const jute::event& what) noexcept = 0;
  // The session is over, and with it all its nodes.
  virtual void on_session_over(const session_view& gone, std::string_view why) noexcept = 0;
  // A new connection. If it is of the same session as before, what was watched is to be watched again, for changes
  // after `since`.
  virtual void on_connected(bool is_same_session, std::int64_t since) noexcept = 0;

 protected:
  ~ensemble_listener() = default;
};

class ensemble final : private net::channel_listener {
 public:
  static result<std::unique_ptr<ensemble>> start(const settings& how, const class clock& time,
                                                 ensemble_listener& listener);
  // From now on the listener may be told. Before anything is asked.
  void connect();
  ~ensemble() { stop(); }
  ensemble(const ensemble&) = delete;
  ensemble& operator=(const ensemble&) = delete;
  // Ends the session, if a server can be told within a moment; then everything that is under way completes. The thread
  // goes on until stop().
  void close() noexcept;
  void stop() noexcept;

  // `most_attempts`: to connect, from now on; then it is given up, although there is time left.
  result<answers> run(const batch& what, const call& limits, std::size_t most_attempts = SIZE_MAX);
  class handler {
   public:
    virtual void on_answers(result<answers> what) noexcept = 0;

   protected:
    ~handler() = default;
  };
  // `what` and `limits` stay alive until the handler was told.
  void post(const batch& what, const call& limits, handler& done) noexcept;
  // With no verb that waits for it: `done` is told once, on the reactor's thread or at once.
  using on_told = std::function<void(const result<answers>&)>;
  void ask_in_background(batch what, nanoseconds patience, on_told done) noexcept;

  // co_await: run or post, as the invocation says.
  class asking;
  asking ask(const batch& what, const invocation& how) noexcept;

  session_view current() const;
  // The number of the session with that id; 0: it is none of ours, or an old one.
  std::uint64_t number_of(std::int64_t session) const;

  // Which connection this is (0: none at the moment), and whether an event has come in over it that the listener has
  // not been told of yet. An event comes before the answer to whatever was carried out after it.
  std::uint64_t connection() const noexcept { return channel_->generation(); }
  // The same, if it carries that session of ours (read in this order: a greeting sets the session first).
  std::uint64_t connection_in(std::uint64_t session) const noexcept {
    const auto over = connection();
    return number_now() == session ? over : 0;
  }
  bool has_untold_events() const noexcept {
    return events_.load(std::memory_order_acquire) != told_events_.load(std::memory_order_acquire);
  }

  net::reactor& driver() noexcept { return *reactor_; }
  const settings& how() const noexcept { return how_; }
  const std::string& root() const noexcept { return top_; }  // a node that is there

 private:
  class sending;
  ensemble(const settings& how, const class clock& time, ensemble_listener& listener);

  net::channel_options options();
  void find_address(const net::address_found& found);
  std::string greeting();
  result<void> greeted(std::string_view frames);
  bool is_of_another(const jute::connected& said) const;
  bool lives_behind(const jute::connected& said);
  void take_session(const jute::connected& said);
  void on_push(std::string_view frame) noexcept override;
  void on_up(std::uint64_t generation) noexcept override;
  void on_down(const error& why) noexcept override;
  void session_is_over(std::string_view why);
  void begin_pause(sending& request);
  void tick();
  void plan_tick(nanoseconds after);
  nanoseconds patience() const;
  nanoseconds quiet_time() const;
  bool is_stopping() const {
    const std::lock_guard lock{guard_};
    return stopping_;
  }

  std::uint64_t number_now() const noexcept { return number_.load(std::memory_order_acquire); }
  result<answers> read(const batch& what, std::unique_ptr<std::string> frames, steady_time sent,
                       std::uint64_t asked_in);

  const settings how_;
  const class clock& clock_;
  ensemble_listener& listener_;
  const std::string top_;
  std::unique_ptr<net::reactor> reactor_;
  std::unique_ptr<net::channel> channel_;
  std::atomic<std::uint64_t> number_{0};  // session_.number
  std::atomic<std::uint64_t> events_{0}, told_events_{0};
  std::atomic<std::int64_t> newest_zxid_{0};  // that any server has told
  std::atomic<std::size_t> attempts_{0};      // to connect
  std::atomic<steady_time> sent_at_{};        // something was given to the connection

  mutable std::mutex guard_;
  bool stopping_ = false;
  session_view session_;        // id 0: there is none
  std::uint64_t sessions_ = 0;  // that we had
  std::string password_;
  std::int64_t zxid_before_ = 0;  // that was seen before this connection
  nanoseconds first_length_{};    // of the first session of all
  steady_time down_since_{};  // of engine_config::clock; of no meaning while there is a connection
  // A question whether the session lives at all (greeting()); and since when one was answered with yes, although no
  // server takes us.
  bool is_probe_ = false;
  std::optional<steady_time> behind_since_{};
  bool is_resumed_ = false;  // this connection goes on with the session of the one before
  std::size_t next_server_ = 0;
  std::set<sending*> pausing_;  // the thread that takes one out of it goes on with it

  // Of the reactor's thread.
  std::optional<net::reactor::timer_id> timer_;
  std::uint64_t heard_ = 0;  // channel::received() when it was last looked at
  steady_time heard_at_{};   // something had come in by then
  bool pinged_ = false;      // and since then we have asked for an answer
  steady_time pinged_at_{};
  bool has_answered_ = false;  // this connection, more than the greeting
  bool is_up_ = false;
};

class ensemble::asking final : private handler {
 public:
  asking(ensemble& in, const batch& what, const invocation& how) noexcept
      : in_(in), what_(what), how_(how) {}
  bool await_ready() {
    if (how_.blocks) got_.emplace(in_.run(what_, how_.limits));
    return how_.blocks;
  }
  void await_suspend(std::coroutine_handle<> caller) noexcept {
    caller_ = caller;
    in_.post(what_, how_.limits, *this);
  }
  result<answers> await_resume() { return std::move(*got_); }

 private:
  void on_answers(result<answers> what) noexcept override {
    got_.emplace(std::move(what));
    caller_.resume();
  }
  ensemble& in_;
  const batch& what_;
  const invocation& how_;
  std::coroutine_handle<> caller_{};
  std::optional<result<answers>> got_{};
};

inline ensemble::asking ensemble::ask(const batch& what, const invocation& how) noexcept {
  return asking{*this, what, how};
}

}  // namespace holdfast::engines::zk
