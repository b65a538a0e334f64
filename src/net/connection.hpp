// One connection that many threads share, from the first attempt to connect until it is lost: how it is opened, which
// thread writes, reads and runs callbacks. What is spoken on it is the business of the protocol that it owns
// (protocol.hpp). A channel that reconnects makes a new one, so nothing of the old one (late readers, half a frame) can
// be taken for the new one's.
//
// Which thread does what:
//   opening   the reactor's thread alone: address, look-up, connect, TLS, greeting. Calls may already queue up.
//   writing   the thread that sets writing_: a caller, a send_now() or the reactor. It sends outside the mutex until
//             nothing is left, so requests that come meanwhile go along. When the socket is full the reactor goes on.
//   reading   the leader: one caller, or the reactor, or none. pass_lead() chooses the next.
//   callbacks the reactor's thread alone completes handlers and calls listeners (deliver()).
//
// Locks: guard_, then the reconnector's, then the reactor's. Callers are woken without any.
#pragma once

#include "net/address_provider.hpp"
#include "net/blocked_call.hpp"
#include "net/protocol.hpp"
#include "net/reactor_impl.hpp"
#include "net/read_buffer.hpp"
#include "net/stream.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::net {

class reconnector;

struct connection_settings {
  address where;
  address_provider find_address;  // instead of `where`, when it is set
  std::string description;        // of the server for error sentences, secrets redacted
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

class connection final : public watcher, public std::enable_shared_from_this<connection> {
 public:
  // `serial`: of all connections of one channel, also of those that never came up.
  connection(reactor::impl& loop, std::shared_ptr<const connection_settings> settings,
             std::unique_ptr<protocol> speaks, std::weak_ptr<reconnector> owner,
             std::uint32_t serial);
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // ---- Calls, for the channel, which knows what its protocol is.

  // `begin(protocol_events&)` puts a request into the protocol. False, of it or of run() and start(): not on this
  // connection, which is lost or retired; take another.
  //
  // Until the protocol says that the call is done.
  template <class Begin>
  bool run(blocked_call& self, const limits& until, Begin begin);
  // Without waiting: the reactor's thread or this one writes.
  enum class writer : std::uint8_t { reactor, caller };
  template <class Begin>
  bool start(writer by, Begin begin) noexcept;
  // Whatever else is to be done to the protocol: `act(protocol_events&)`. Also on a retired connection.
  template <class Act>
  void change(Act act) noexcept;
  // change(act(protocol&, protocol_events&)) on the reactor's thread, when stop is requested. Null: it never is.
  template <class Act>
  std::unique_ptr<stop_watch> on_stop(const std::stop_token& stop, Act act);

  protocol& speaks() noexcept { return *protocol_; }
  // In begin(): how many bytes were taken from the protocol and are not sent yet.
  std::size_t backlog() const noexcept { return chunk_.size() - chunk_at_; }
  std::uint64_t generation() const noexcept { return generation_; }  // after an answer

  // ---- Its life, for the reconnector.

  void open() noexcept;  // on the reactor's thread, once
  // Ends it, and every call on it. Nothing happens when it has ended before.
  void lose(const error& why) noexcept;
  void deliver() noexcept;  // on the reactor's thread
  std::uint32_t serial() const noexcept { return serial_; }
  bool answered() const noexcept { return received_ > 0; }  // in note_lost()
  std::uint64_t received() noexcept {
    const std::lock_guard locked{guard_};
    return received_;
  }

 private:
  enum class phase : std::uint8_t { opening, greeting, ready, dead };
  enum class reader : std::uint8_t { none, caller, reactor };
  using lock = std::unique_lock<std::mutex>;
  struct wake_up {
    blocked_call* call;
    std::uint32_t value;  // for parker::set()
  };
  using wake_list = std::vector<wake_up>;  // to be woken when the mutex is free again

  static constexpr std::uint32_t answered_it = 1;  // done: need not look under the mutex
  static constexpr std::uint32_t look = 2;

  // Opening (connection_open.cpp), on the reactor's thread.
  void on_event(std::uint32_t events) noexcept override;
  bool is_dead() noexcept;
  void on_address(result<address> found);
  void look_up();
  void on_endpoints(const resolver::answer& found);
  void try_next_endpoint();
  void note_failure(errc code, std::string_view why);
  void begin_stream(std::unique_ptr<stream> opened);
  void leave_endpoint() noexcept;
  void step();
  void greet();
  bool send_greeting();
  bool take_greeting();
  void become_ready();
  void wait_for(io_result::direction wanted) noexcept;
  void out_of_time() noexcept;
  void fail_to_open(errc code, std::string_view why) noexcept;

  // Calls and the end (connection.cpp).
  bool takes_calls() const noexcept { return phase_ != phase::dead && !is_retired_; }
  void wait_for_answer(lock& locked, blocked_call& self, steady_time deadline);
  void stop(blocked_call& call) noexcept;
  void push_out(lock& locked, writer by);
  void apply(protocol_events& out, wake_list& woken);
  void complete(blocked_call& call, wake_list& woken);
  void interrupt_leader() const noexcept;  // so that it looks up from the socket
  void fail_all(const error& why, wake_list& woken);
  static void wake(const wake_list& some) noexcept;
  static void wake_unlocked(lock& locked, const wake_list& some) noexcept;
  void clean_up() noexcept;
  void post_delivery();
  void plan_tick();
  void tick() noexcept;
  void plan_check(steady_time when);  // one timer: at the earliest time something may be due
  void run_check() noexcept;
  template <class Action>
  std::function<void()> later(Action action);

  // Writing and reading (connection_io.cpp).
  bool may_write() const noexcept { return phase_ == phase::ready && !writing_ && !shut_; }
  void write_out(lock& locked);
  bool write_all(lock& locked, wake_list& woken);
  void write_owed(lock& locked);
  void write_failed(const io_result& how);
  void post_flush();
  void flush() noexcept;
  bool may_lead() const noexcept {
    return phase_ == phase::ready && reader_ == reader::none && !settings_->keep_open;
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
  void watch_input();
  void on_ready_event(std::uint32_t events) noexcept;
  void arm() noexcept;

  reactor::impl& loop_;
  const std::shared_ptr<const connection_settings> settings_;
  const std::weak_ptr<reconnector> owner_;
  const std::uint32_t serial_;
  const int interrupt_;  // an eventfd that the leading caller polls too

  // Guarded by guard_.
  std::mutex guard_;
  const std::unique_ptr<protocol> protocol_;  // but for parse()
  phase phase_ = phase::opening;
  bool is_retired_ = false;
  std::uint64_t generation_ = 0;
  reader reader_ = reader::reactor;
  bool write_soon_ = false;  // something to send has come up while reading or giving up
  std::uint64_t calls_ = 0;
  std::uint64_t received_ = 0;  // how often something came in after the greeting
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
  read_buffer read_buffer_;
  bool maybe_more_ = false;  // there may be bytes to read that poll() does not see
  io_result::direction read_wants_ = io_result::direction::read;

  // Of the reactor's thread while opening.
  std::optional<address> found_address_;
  const address* where_ = nullptr;  // null: the provider has not answered yet
  std::vector<endpoint> endpoints_;
  std::size_t next_endpoint_ = 0;
  steady_time give_up_at_{};
  reactor::timer_id opening_timer_ = 0, endpoint_timer_ = 0;
  errc last_code_ = errc::unavailable;
  std::string last_failure_;
  std::optional<std::string> greeting_;
  std::size_t greeting_sent_ = 0;
};

// Runs `action` on this connection if it is still there by then.
template <class Action>
std::function<void()> connection::later(Action action) {
  return [weak = weak_from_this(), action] {
    if (const auto self = weak.lock()) action(*self);
  };
}

template <class Begin>
bool connection::run(blocked_call& self, const limits& until, Begin begin) {
  const counted_call counted;
  const auto interrupt = [this, &self] { stop(self); };
  // Goes before `self`, without the mutex.
  std::optional<std::stop_callback<decltype(interrupt)>> stopped;
  if (until.stop.stop_possible()) stopped.emplace(until.stop, interrupt);

  wake_list woken;
  lock locked{guard_};
  if (!takes_calls()) return false;
  protocol_events out;
  const bool begun = begin(out);
  apply(out, woken);
  wake_unlocked(locked, woken);
  if (begun) wait_for_answer(locked, self, until.deadline);
  return begun;
}

template <class Begin>
bool connection::start(writer by, Begin begin) noexcept {
  wake_list woken;
  bool begun = false;
  {
    lock locked{guard_};
    if (!takes_calls()) return false;
    protocol_events out;
    begun = begin(out);
    apply(out, woken);
    if (begun) push_out(locked, by);
  }
  wake(woken);
  return begun;
}

template <class Act>
void connection::change(Act act) noexcept {
  wake_list woken;
  {
    lock locked{guard_};
    if (phase_ == phase::dead) return;
    protocol_events out;
    act(out);
    apply(out, woken);
    if (std::exchange(write_soon_, false)) push_out(locked, writer::caller);
  }
  wake(woken);
}

template <class Act>
std::unique_ptr<stop_watch> connection::on_stop(const std::stop_token& stop, Act act) {
  if (!stop.stop_possible()) return nullptr;
  auto work = later([act](connection& self) {
    self.change([&](protocol_events& out) { act(*self.protocol_, out); });
    self.deliver();
  });
  return std::make_unique<stop_watch>(stop,
                                      [&loop = loop_, work = std::move(work)] { loop.post(work); });
}

}  // namespace holdfast::net
