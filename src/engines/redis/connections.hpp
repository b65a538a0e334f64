// The connections of one client to one Redis server, and how scripts are run over them.
//
// Commands about a lock go over the connection that its name chooses, so a release never overtakes its acquire. One
// more connection, the stream, carries messages, renewals and signs of life; nothing else waits behind it.
//
// A connection whose peer has vanished without a word looks like a slow server. When a request has been given up, or
// nothing has come for a second although an answer is due, all connections are probed at the same time, and those that
// stay silent for two more seconds are given up: so whatever call_timeout is, a client is back on new connections
// within about four seconds. Silent means that nothing at all comes in. With wait_replicas a server that is well may
// say nothing for wait_timeout, so on connections for commands that time is added.
//
// All connections must reach one server: what the stream proves, and what it hears, counts for what was asked over the
// others. An address that moves from one server to another (a virtual IP, DNS) may leave some behind. So whenever a
// connection comes up, the server at the other end of those for commands is asked whether our stream listens there, and
// the older one is given up if it does not. And a server that turns out to be a replica is not ours any more:
// then all are given up.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/redis/command.hpp"
#include "engines/redis/errors.hpp"
#include "engines/redis/greeting.hpp"
#include "engines/redis/lately_ended.hpp"
#include "engines/redis/scripts.hpp"
#include "engines/redis/sentinels.hpp"
#include "engines/redis/settings.hpp"
#include "net/channel.hpp"
#include "net/reactor.hpp"
#include "resp/resp.hpp"
#include "support/parker.hpp"

#include <holdfast/engine.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

inline net::limits to_net(const call& limits) { return {limits.deadline, limits.stop}; }

// How many were asked over a connection, and how many of them have ended, answered or not.
class call_counter {
 public:
  // In the one order of all sequentially consistent operations: begin() and look() of connections rely on it.
  void ask() noexcept { asked_.fetch_add(1); }
  void ended() noexcept { ended_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t asked() const noexcept { return asked_.load(); }
  bool owes() const noexcept { return asked_.load() != ended_.load(); }

 private:
  std::atomic<std::uint64_t> asked_{0}, ended_{0};
};

// A connection, and whether it owes us something. The channel goes first: while it closes, the calls that get no answer
// any more are still counted.
class tracked_channel final : public call_counter, public net::channel {
 public:
  // `patience`: how long it may take for a living server to answer a PING, behind what may be in front of it.
  tracked_channel(net::reactor& on, const net::channel_options& options, nanoseconds patience)
      : net::channel(on, options), patience_(patience) {}
  // Of the reactor's thread: has it owed us an answer since the last look, and nothing at all has come?
  bool was_silent() noexcept;
  bool was_used() const noexcept { return asked() != asked_then_; }
  nanoseconds patience() const noexcept { return patience_; }

 private:
  const nanoseconds patience_;
  std::uint64_t asked_then_ = 0, received_then_ = 0;
  bool owed_then_ = false;
};

class connections {
 public:
  // `setup` is sent on the stream's connections after the greeting (SUBSCRIBE ...): `setup_replies` answers are not
  // pushes.
  struct stream_setup {
    std::string commands;
    unsigned replies = 0;
    // More of them, where they differ from connection to connection. As net::channel_options::make_greeting.
    std::function<std::string()> make_commands{};
    std::vector<const script*> ready{};  // as of connect(), for what goes over the stream
    net::channel_listener* listener = nullptr;
    std::string
        topic{};  // what it alone listens to; empty: whether all reach one server does not matter
  };
  struct transport {
    net::reactor* reactor = nullptr;       // to be shared, and to outlive us; null: one of our own
    net::address_provider find_address{};  // where the server is; empty: as the settings say
    // Asked on every connection as part of the greeting. `introduced` judges each answer, with a lock of the connection
    // held: it must be quick, and must not use the connections.
    std::string introduction{};
    unsigned introduction_replies = 0;
    introduction_judge introduced{};
  };
  static result<std::unique_ptr<connections>> start(const settings& how) {
    return start(how, transport{});
  }
  static result<std::unique_ptr<connections>> start(const settings& how, transport over);
  ~connections();
  connections(const connections&) = delete;
  connections& operator=(const connections&) = delete;
  // `lifts`: the token counter is brought up to the clock on every connection (native layout). Once, before any use.
  // `ready`: scripts that the server shall know from the start, because their calls are not waited for: one that had to
  // be sent again would come after what was asked behind it.
  void connect(bool lifts, const stream_setup& stream, std::span<const script* const> ready);

  tracked_channel& of(std::string_view name) noexcept;
  tracked_channel& stream() noexcept { return *stream_; }
  // Timers that others put on it are theirs to cancel: it may be shared, and outlive us.
  net::reactor& driver() noexcept { return reactor_; }
  const std::string& url() const noexcept { return url_; }
  // Null: the address is that of the server itself.
  sentinels* known_by() noexcept { return sentinels_.get(); }
  // Where another server may become the master (lately_ended.hpp): which one it is, to be read before what ends an
  // owner is sent; and that this was answered.
  std::uint64_t master() const noexcept { return ends_ ? ends_->master() : 0; }
  void note_end(std::uint64_t master, tracked_channel& over, command&& what) {
    if (ends_) ends_->note(master, over, std::move(what));
  }
  // An error reply as one of ours.
  error refusal(std::string_view reply, std::string_view name) const;
  // The master is elsewhere: gives up all connections, also those that are only about to be made. On the reactor's
  // thread.
  void leave(std::string_view why);
  // Waits until the server has read all that was sent, within reason: closing a connection with answers unread makes
  // the kernel throw away what the server has not read yet. Twice, because core and the engine clear up in two steps:
  // the answer to the first may have sent the second.
  void drain() noexcept { drain_all(std::array{this}); }
  // The same for several at the same time: one that is mute costs the others nothing.
  static void drain_all(std::span<connections* const> all) noexcept;

  // On this thread. Error replies are errors; a script that the server does not know is sent whole.
  result<answer> run(tracked_channel& over, command& what, const call& limits,
                     std::string_view name);
  // One plain command.
  result<answer> run(tracked_channel& over, std::initializer_list<std::string_view> words,
                     const call& limits, std::string_view name = {});

  // Without waiting: finish(result<answer>) is called once, on the reactor's thread or at once. With sends::now the
  // request leaves at once, from this thread, and its answer may come a little later.
  enum class sends : std::uint8_t { soon, now };
  template <class Finish>
  void post(tracked_channel& over, command what, const call& limits, std::string_view name,
            Finish finish, sends when = sends::soon) noexcept;

  // co_await: run or post, as the invocation says. `what` and `name` stay alive until the answer is there.
  class asking;
  asking ask(tracked_channel& over, command& what, std::string_view name, const invocation& how,
             sends when = sends::soon) noexcept;

  // co_await: until the server has served all that was sent over these connections before. False: one has failed.
  class passing;
  passing pass(std::set<tracked_channel*> over, const invocation& how);

  // The names of all keys that begin with `head` and `prefix`, without the head; sorted. In small steps through the key
  // space, so that the server never stands still for it as it does for KEYS.
  operation<std::vector<std::string>> scan(std::string_view head, std::string_view prefix,
                                           invocation how);
  // The keys themselves, by a pattern as the server understands it; and a text that stands for itself in one.
  operation<std::vector<std::string>> keys_like(std::string pattern, invocation how);
  static std::string as_pattern(std::string_view text);

  // What came over this connection (0: it is gone since): all frames as values, or the first error reply as an error
  // unless they are kept.
  result<answer> read(std::string_view frames, const command& asked, std::string_view name,
                      tracked_channel& over, std::uint64_t generation);
  // A failure of the connection, with the lock that was asked for (may be empty).
  static error about(error why, std::string_view name);
  static bool is_unknown_script(std::string_view frames) noexcept {
    return frames.starts_with("-NOSCRIPT") ||
           frames.find("\r\n-NOSCRIPT") != std::string_view::npos;
  }

 private:
  connections(const settings& how, transport over, std::unique_ptr<net::reactor> own);

  // A call begins; and ends, answered or not. The caller writes that it asked and then reads whether a look is
  // planned; the reactor writes that none is and then reads whether a caller has asked (look()). One of the two must
  // see the other, or a silent connection is never looked at: so all four are sequentially consistent.
  void begin(tracked_channel& over) {
    over.ask();
    if (!looks_.load() && !looks_.exchange(true)) look_later();
  }
  void finish(tracked_channel& over, bool unanswered) {
    over.ended();
    if (unanswered) suspect();
  }
  class pending_reply;
  template <class Finish>
  class posted;
  class probe;
  class up_listener;
  void came_up(tracked_channel* which);
  void compare(tracked_channel& commands, tracked_channel& older);
  void leave_replica(tracked_channel& found, std::uint64_t generation);
  std::vector<tracked_channel*> all_channels() const;
  void look_later();
  void look();
  void suspect();
  void probe_all();

  const settings how_;
  const std::string url_;
  const pid_t process_ = getpid();
  transport over_;
  const std::unique_ptr<net::reactor> own_reactor_;  // null: it is shared
  net::reactor& reactor_;
  // Of the reactor's thread: false when we are closed. What is posted has a share in it, because a reactor that is not
  // ours may run that later.
  const std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);
  std::atomic<bool> looks_{false};        // a look at the connections is planned
  std::atomic<bool> suspects_{false};     // all are being probed, or about to be
  std::size_t probes_ = 0;                // unanswered ones; of the reactor's thread
  std::string topic_;                     // as stream_setup
  std::unique_ptr<sentinels> sentinels_;  // null: the address is that of the server
  std::optional<lately_ended> ends_{};
  std::vector<std::unique_ptr<up_listener>> up_listeners_;
  std::vector<std::unique_ptr<tracked_channel>> channels_;
  std::unique_ptr<tracked_channel> stream_;
};

// A command that was sent without waiting. Sent again, whole, when the server does not know its script.
class connections::pending_reply : private net::reply_handler {
 protected:
  // All of them stay alive until on_answer().
  pending_reply(connections& from, tracked_channel& on, command& what, const call& limits,
                std::string_view name) noexcept
      : connections_(from), on_(on), what_(what), limits_(limits), name_(name) {}
  ~pending_reply() = default;

  // The answer may come before this returns.
  void start(sends when) noexcept;
  result<answer> run() { return connections_.run(on_, what_, limits_, name_); }
  virtual void on_answer(result<answer> got) noexcept = 0;

 private:
  void on_reply(result<std::string_view> frames) noexcept final;

  connections& connections_;
  tracked_channel& on_;
  command& what_;
  const call& limits_;
  const std::string_view name_;
};

template <class Finish>
class connections::posted final : public pending_reply {
 public:
  posted(connections& from, tracked_channel& on, command what, const call& limits,
         std::string_view name, Finish then)
      : pending_reply(from, on, what_, limits_, name),
        what_(std::move(what)),
        limits_(limits),
        finish_(std::move(then)) {}
  using pending_reply::start;

 private:
  void on_answer(result<answer> got) noexcept override {
    auto finish_with = std::move(finish_);
    delete this;
    finish_with(std::move(got));
  }
  command what_;
  const call limits_;
  Finish finish_;
};

template <class Finish>
void connections::post(tracked_channel& over, command what, const call& limits,
                       std::string_view name, Finish finish, sends when) noexcept {
  (new posted<Finish>{*this, over, std::move(what), limits, name, std::move(finish)})->start(when);
}

class connections::asking final : private pending_reply {
 public:
  asking(connections& in, tracked_channel& over, command& what, std::string_view name,
         const invocation& how, sends when) noexcept
      : pending_reply(in, over, what, how.limits, name), blocks_(how.blocks), when_(when) {}
  bool await_ready() {
    if (blocks_) got_.emplace(run());
    return blocks_;
  }
  void await_suspend(std::coroutine_handle<> caller) noexcept {
    caller_ = caller;
    start(when_);
  }
  result<answer> await_resume() { return std::move(*got_); }

 private:
  void on_answer(result<answer> got) noexcept override {
    got_.emplace(std::move(got));
    caller_.resume();
  }
  const bool blocks_;
  const sends when_;
  std::coroutine_handle<> caller_{};
  std::optional<result<answer>> got_{};
};

inline connections::asking connections::ask(tracked_channel& over, command& what,
                                            std::string_view name, const invocation& how,
                                            sends when) noexcept {
  return asking{*this, over, what, name, how, when};
}

class connections::passing {
 public:
  passing(connections& in, std::set<tracked_channel*> over, const invocation& how)
      : in_(in), over_(std::move(over)), how_(how), left_(over_.size() + 1) {}
  bool await_ready() {
    if (how_.blocks && begin()) parker_.wait(steady_time::max());
    return how_.blocks;
  }
  void await_suspend(std::coroutine_handle<> caller) {
    caller_ = caller;
    if (!begin()) caller.resume();
  }
  bool await_resume() const noexcept { return !failed_; }

 private:
  // On all of them at the same time. False: all answers are there already. If not, the last one goes on, perhaps
  // before this returns.
  bool begin();

  connections& in_;
  const std::set<tracked_channel*> over_;
  const invocation& how_;
  std::atomic<std::size_t> left_;  // unanswered ones, and begin()
  std::atomic<bool> failed_{false};
  std::coroutine_handle<> caller_{};
  support::parker parker_;
};

inline connections::passing connections::pass(std::set<tracked_channel*> over,
                                              const invocation& how) {
  return passing{*this, std::move(over), how};
}

}  // namespace holdfast::engines::redis
