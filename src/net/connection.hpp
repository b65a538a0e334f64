// One connection of a channel, from the first attempt to connect until it is lost. A channel that reconnects makes a
// new one, so nothing of the old one (late readers, holes, half a frame) can be taken for the new one's.
//
// Who does what:
//   opening   the reactor's thread alone: look-up, connect, TLS, greeting. Calls may already queue up.
//   writing   whoever sets writing_: a caller, a send_now() or the reactor. It sends outside the mutex until nothing is
//             left, so requests that come meanwhile go along. When the socket is full the reactor goes on.
//   reading   the holder of the lead: one caller, or the reactor, or nobody. See pass_lead() for who is next.
//   telling   the reactor's thread alone completes handlers and calls the listener (deliver()).
//
// Locks: guard_, then the owner's, then the reactor's. Callers are woken without any.
#pragma once

#include "net/channel.hpp"
#include "net/inbox.hpp"
#include "net/order.hpp"
#include "net/outbox.hpp"
#include "net/reactor_impl.hpp"
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

// Counts the threads in exchange(), for spinning.
struct one_more_call {
  one_more_call() noexcept;
  ~one_more_call();
  one_more_call(const one_more_call&) = delete;
  one_more_call& operator=(const one_more_call&) = delete;
};

// The channel, as its connection sees it. Called with the connection's mutex held.
class connection_owner {
 public:
  virtual std::uint64_t accepted(const connection& which,
                                 int fd) noexcept = 0;  // returns its generation
  virtual void lost(const connection& which, const error& why) noexcept = 0;
  virtual channel_listener*
  listener() noexcept = 0;  // null after the channel was closed; called without the mutex

 protected:
  ~connection_owner() = default;
};

class connection final : public watcher, public std::enable_shared_from_this<connection> {
 public:
  enum class pace : std::uint8_t { reactor_sends, caller_sends };  // send(), send_now()

  connection(reactor::impl& loop, std::shared_ptr<const channel_options> options,
             std::weak_ptr<connection_owner> owner);
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  void open() noexcept;  // on the reactor's thread, once

  // Nothing: this connection is gone; ask the owner for another.
  std::optional<result<std::uint64_t>> exchange(std::string_view request, unsigned replies,
                                                const limits& until, std::string& into);
  // False: as above.
  bool send(std::string_view request, unsigned replies, const limits& until, reply_handler& done,
            pace how) noexcept;

  // Ends it, and every call on it. Nothing happens when it has ended before.
  void lose(const error& why) noexcept;
  void deliver() noexcept;  // on the reactor's thread

  bool answered() const noexcept { return received_ > 0; }  // for the owner, in lost()

 private:
  enum class phase : std::uint8_t { opening, greeting, ready, dead };
  enum class reader : std::uint8_t { nobody, caller, reactor };
  using lock = std::unique_lock<std::mutex>;
  struct wake_up {
    caller* who;
    std::uint32_t value;  // for parker::set()
  };
  using callers = std::vector<wake_up>;  // to be woken when the mutex is free again
  struct piece {
    std::string_view bytes;
    bool push;
  };
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
  void take_greeting();
  void become_ready();
  void wait_for(io_result::direction wanted) noexcept;
  void out_of_time() noexcept;
  void fail_to_open(errc code, std::string_view why) noexcept;

  // Calls and their end (connection.cpp).
  std::optional<error> refusal(const limits& until) const;
  result<std::uint64_t> outcome(caller& self) const;
  void stop(caller& who) noexcept;
  void interrupt_leader() const noexcept;
  void cancel(std::uint64_t number) noexcept;
  void give_up(caller& self);
  void give_up(place& which, bool stopped);
  error make_hole(place& which, bool stopped);
  void plan_check(steady_time when);
  void check() noexcept;
  steady_time check_silence(steady_time now, callers& woken);
  error fate(const place& which, const error& why, bool was_ready) const;
  void fail_all(const error& why, callers& woken);
  void clean_up() noexcept;
  void complete(caller& who, callers& woken);
  static void wake(const callers& some) noexcept;

  // Writing (connection_io.cpp).
  bool may_write() const noexcept { return phase_ == phase::ready && !writing_ && !shut_; }
  void write_out(lock& locked);
  void finish_unanswerable(lock& locked);
  void write_failed(const io_result& how);
  void post_flush();
  void flush() noexcept;

  // Reading (connection_io.cpp).
  bool may_lead() const noexcept {
    return phase_ == phase::ready && reader_ == reader::nobody && !options_->keep_open;
  }
  void take_lead(caller& who);
  void pass_lead(callers& woken);
  void lead(lock& locked, const caller& self, steady_time deadline);
  void read_pass() noexcept;
  io_result read_some();
  io_result await_bytes(steady_time deadline);
  std::optional<io_result> spin_for_bytes(steady_time deadline);
  void sleep_for_bytes(steady_time deadline) noexcept;
  std::optional<error> cut();
  void take_in(const io_result& got, const std::optional<error>& broken, callers& woken);
  std::optional<error> distribute(callers& woken);
  void finish(place& which, std::string_view last, callers& woken);
  void finish_front(callers& woken);

  // The reactor's part in both.
  void on_ready_event(std::uint32_t events) noexcept;
  void watch_input();
  void arm() noexcept;
  void plan_tick();
  void tick() noexcept;
  void post_delivery();
  template <class Action>
  std::function<void()> later(Action action);

  reactor::impl& loop_;
  const std::shared_ptr<const channel_options> options_;
  const std::weak_ptr<connection_owner> owner_;
  const int interrupt_;  // an eventfd that the leading caller polls too

  std::mutex guard_;
  phase phase_ = phase::opening;
  std::uint64_t generation_ = 0;
  order order_;
  waiting_callers waiting_;
  outbox outbox_;
  reader reader_ = reader::reactor;
  caller* lead_ = nullptr;  // reader_ == caller
  bool writing_ = false;
  bool shut_ = false;  // writing has failed; what has arrived is still read
  std::string write_failure_;
  bool reactor_reads_ = false;  // the reactor shall wake up for input
  std::uint32_t blocked_on_ =
      0;  // writing_, and the reactor shall go on when this happens: EPOLLOUT
  std::uint32_t armed_ = 0;
  bool flush_posted_ = false, delivery_posted_ = false, tick_planned_ = false;
  std::uint64_t calls_ = 0, calls_at_tick_ = 0;
  steady_time check_at_ = steady_time::max();
  std::uint64_t received_ = 0;  // how often something came in after the greeting
  // Since when nothing has come in while there is a hole, and for how long that may go on.
  steady_time silent_since_{};
  std::uint64_t received_at_silence_ = 0;
  nanoseconds patience_{};

  // Set while opening, constant afterwards.
  std::unique_ptr<stream> io_;
  reactor::impl::watch_id watch_ = 0;

  // Of the writer, and changed with the mutex held only.
  std::string chunk_;
  std::size_t chunk_at_ = 0;

  // Of the reader.
  inbox inbox_;
  std::unique_ptr<framing> framing_;
  std::vector<piece> pieces_;
  std::size_t cut_bytes_ = 0;
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
  unsigned greeting_frames_ = 0;
  std::string greeting_answer_;
  outbox telling_;
};

// Runs `action` on this connection if it is still there by then.
template <class Action>
std::function<void()> connection::later(Action action) {
  return [weak = weak_from_this(), action] {
    if (const auto self = weak.lock()) action(*self);
  };
}

}  // namespace holdfast::net
