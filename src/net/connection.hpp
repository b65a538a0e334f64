// One connection that many threads share, from the first attempt to connect until it is lost: how it is opened,
// which thread writes, reads and runs callbacks. What is spoken on it is the business of a derived class, through the
// hooks below.
// A channel that reconnects makes a new one, so nothing of the old one (late readers, half a frame) can be taken for
// the new one's.
//
// Which thread does what:
//   opening   the reactor's thread alone: look-up, connect, TLS, greeting. Calls may already queue up.
//   writing   the thread that sets writing_: a caller, a send_now() or the reactor. It sends outside the mutex until
//             nothing is left, so requests that come meanwhile go along. When the socket is full the reactor goes on.
//   reading   the leader: one caller, or the reactor, or none. pass_lead() chooses the next.
//   callbacks the reactor's thread alone completes handlers and calls listeners (deliver()).
//
// Locks: guard_, then the owner's, then the reactor's. Callers are woken without any.
#pragma once

#include "net/blocked_call.hpp"
#include "net/reactor_impl.hpp"
#include "net/read_buffer.hpp"
#include "net/stream.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::net {

class connection;

// Makes a new connection when this one is lost. Called with the connection's mutex held.
class connection_owner {
 public:
  virtual std::uint64_t accepted(const connection& which,
                                 int fd) noexcept = 0;  // returns its generation
  virtual void lost(const connection& which, const error& why) noexcept = 0;

 protected:
  ~connection_owner() = default;
};

struct connection_settings {
  address where;
  std::string description;  // of the server for error sentences, secrets redacted
  nanoseconds connect_timeout{};
  nanoseconds spin{};      // how long a lone leader polls before it sleeps
  bool keep_open = false;  // a stream: the reactor always reads
};

// Counts the threads in blocking calls, for spinning.
struct counted_call {
  counted_call() noexcept;
  ~counted_call();
  counted_call(const counted_call&) = delete;
  counted_call& operator=(const counted_call&) = delete;
};

bool passed(steady_time deadline);
long milliseconds_since(steady_time then);

class connection : public watcher, public std::enable_shared_from_this<connection> {
 public:
  connection(reactor::impl& loop, connection_settings settings,
             std::weak_ptr<connection_owner> owner);
  virtual ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  void open() noexcept;  // on the reactor's thread, once
  // Ends it, and every call on it. Nothing happens when it has ended before.
  void lose(const error& why) noexcept;
  void deliver() noexcept;  // on the reactor's thread

  bool answered() const noexcept { return received_ > 0; }  // for the owner, in lost()
  std::uint64_t received() noexcept {
    const std::lock_guard locked{guard_};
    return received_;
  }

 protected:
  enum class phase : std::uint8_t { opening, greeting, ready, dead };
  enum class reader : std::uint8_t { none, caller, reactor };
  using lock = std::unique_lock<std::mutex>;
  struct wake_up {
    blocked_call* call;
    std::uint32_t value;  // for parker::set()
  };
  using wake_list = std::vector<wake_up>;  // to be woken when the mutex is free again

  // ---- Hooks: what is spoken. With the mutex held, unless it says otherwise.

  // The first bytes, and whether the answers to them are all there and good; greeted() is asked once these bytes are
  // out and again whenever something has come in. Of the reactor's thread, without the mutex.
  virtual std::string_view greeting() const noexcept = 0;
  virtual result<bool> greeted() = 0;
  virtual void became_ready() {}

  virtual bool has_output() const noexcept = 0;
  // Moves it all into `chunk`, whose memory is used again. From now on it may have reached the network.
  virtual void take_output(std::string& chunk) = 0;
  // The last `bytes` of what was picked up certainly have not, until they are tried again.
  virtual void certainly_unsent(std::size_t bytes) noexcept { static_cast<void>(bytes); }
  virtual void tried_again() noexcept {}
  virtual void written(lock& locked) { static_cast<void>(locked); }  // a writer has done its work

  // Something is in the read_buffer. digest() is the reader's, without the mutex; distribute() then hands out.
  virtual void digest() {}
  virtual std::optional<error> distribute(wake_list& woken) = 0;
  // Is an answer due that only the reactor will read?
  virtual bool owes_urgently() const noexcept = 0;

  // Gives up the calls of handlers that are due, and looks whether the server still lives. When to look again?
  virtual steady_time check(steady_time now, wake_list& woken) = 0;
  virtual void give_up(blocked_call& self) = 0;  // its deadline has passed, or it was stopped
  virtual void fail_calls(const error& why, bool was_ready, wake_list& woken) = 0;
  virtual void run_callbacks(
      lock& locked) = 0;  // on the reactor's thread; unlocks while it calls them

  // ---- For derived classes.

  const std::string& description() const noexcept { return settings_.description; }
  error unreachable(errc code, std::string_view why) const;
  std::optional<error> refusal(const limits& until, std::size_t unsent) const;

  // Sees a blocking call through whose request has been queued: writes, waits or leads, until it is done.
  void wait_for_answer(lock& locked, blocked_call& self, steady_time deadline);
  // From the stop token of a caller, on the thread that requests the stop.
  void stop(blocked_call& call) noexcept;
  // After a request of send() or send_now() has been queued.
  void push_out(lock& locked, bool at_once);

  void complete(blocked_call& call, wake_list& woken);
  void interrupt_leader() const noexcept;  // so that it looks up from the socket
  void fail_all(const error& why, wake_list& woken);
  static void wake(const wake_list& some) noexcept;

  bool may_write() const noexcept { return phase_ == phase::ready && !writing_ && !shut_; }
  void write_out(lock& locked);
  std::size_t taken_unsent() const noexcept { return chunk_.size() - chunk_at_; }
  void post_flush();
  void post_delivery();
  void plan_tick();
  void plan_check(steady_time when);  // one timer: at the earliest time something may be due
  void write_owed(lock& locked);
  void watch_input();
  template <class Self, class Action>
  std::function<void()> later(Action action);

  reactor::impl& loop_;
  std::mutex guard_;
  phase phase_ = phase::opening;
  std::uint64_t generation_ = 0;
  reader reader_ = reader::reactor;
  bool write_soon_ = false;  // something to send has come up while reading or giving up
  std::uint64_t calls_ = 0;
  std::uint64_t received_ = 0;  // how often something came in after the greeting
  read_buffer read_buffer_;     // of the reader

 private:
  static constexpr std::uint32_t answered_it = 1;  // done: need not look under the mutex
  static constexpr std::uint32_t look = 2;

  // Opening (connection_open.cpp), on the reactor's thread.
  void on_event(std::uint32_t events) noexcept override;
  bool is_dead() noexcept;
  void on_endpoints(const resolver::answer& found);
  void try_next_endpoint();
  void note_failure(errc code, std::string_view why);
  void begin(std::unique_ptr<stream> opened);
  void leave_endpoint() noexcept;
  void step();
  void greet();
  bool send_greeting();
  void become_ready();
  void wait_for(io_result::direction wanted) noexcept;
  void out_of_time() noexcept;
  void fail_to_open(errc code, std::string_view why) noexcept;

  // Callers and the end (connection.cpp).
  void clean_up() noexcept;
  void tick() noexcept;
  void run_check() noexcept;

  // Writing and reading (connection_io.cpp).
  void write_failed(const io_result& how);
  void flush() noexcept;
  bool may_lead() const noexcept {
    return phase_ == phase::ready && reader_ == reader::none && !settings_.keep_open;
  }
  void take_lead(blocked_call& call);
  void pass_lead(wake_list& woken);
  void lead(lock& locked, const blocked_call& self, steady_time deadline);
  void read_pass() noexcept;
  io_result read_some();
  io_result await_bytes(steady_time deadline);
  std::optional<io_result> spin_for_bytes(steady_time deadline);
  void sleep_for_bytes(steady_time deadline) noexcept;
  void take_in(const io_result& got, wake_list& woken);
  void on_ready_event(std::uint32_t events) noexcept;
  void arm() noexcept;

  const connection_settings settings_;
  const std::weak_ptr<connection_owner> owner_;
  const int interrupt_;  // an eventfd that the leading caller polls too

  // Guarded by guard_.
  follower_list followers_;
  blocked_call* lead_ = nullptr;  // reader_ == caller
  bool writing_ = false;
  bool shut_ = false;  // writing has failed; what has arrived is still read
  std::string write_failure_;
  bool reactor_reads_ = false;  // the reactor shall wake up for input
  std::uint32_t blocked_on_ =
      0;  // writing_, and the reactor shall go on when this happens: EPOLLOUT
  std::uint32_t armed_ = 0;
  bool flush_posted_ = false, delivery_posted_ = false, tick_planned_ = false;
  std::uint64_t calls_at_tick_ = 0;
  steady_time check_at_ = steady_time::max();
  reactor::timer_id check_timer_ = 0;

  // Set while opening, constant afterwards.
  std::unique_ptr<stream> io_;
  reactor::impl::watch_id watch_ = 0;

  // Of the writer, and changed with the mutex held only.
  std::string chunk_;
  std::size_t chunk_at_ = 0;

  // Of the reader.
  bool maybe_more_ = false;  // there may be bytes to read that poll() does not see
  io_result::direction read_wants_ = io_result::direction::read;

  // Of the reactor's thread while opening.
  std::vector<endpoint> endpoints_;
  std::size_t next_endpoint_ = 0;
  steady_time give_up_at_{};
  reactor::timer_id opening_timer_ = 0, endpoint_timer_ = 0;
  errc last_code_ = errc::unavailable;
  std::string last_failure_;
  std::size_t greeting_sent_ = 0;
};

// Runs `action` on this connection if it is still there by then.
template <class Self, class Action>
std::function<void()> connection::later(Action action) {
  return [weak = weak_from_this(), action] {
    if (const auto self = weak.lock()) action(static_cast<Self&>(*self));
  };
}

}  // namespace holdfast::net
