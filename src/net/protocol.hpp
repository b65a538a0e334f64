// What is spoken on a connection, as an object without sockets, threads and locks: bytes in, events out.
//
// A connection owns one protocol and calls it, never the other way round. What the protocol finds out, or wants done,
// it notes in the protocol_events that each call carries; the connection does it when the call has returned. All calls
// are made with the connection's mutex held, one at a time, unless it says otherwise; so nothing here is thread-safe,
// and nothing here may block.
//
//   take_output()   the first time: the greeting. After receive() has noted `greeted`: the requests.
//   parse()         bytes have come; look at them without the mutex (framing, decompression), change nothing else
//   receive()       the same bytes, with the mutex: complete calls, note callbacks
//   on_time()       whatever has a deadline
//   abandon()       a thread does not wait any more
//   on_lost()       the connection is gone: all calls fail
//   run_callbacks() on the reactor's thread: handlers and listeners are told
//
// How calls get in is the protocol's own: its channel knows the type, and calls it inside connection::run() (a thread
// that waits), connection::start() (a handler that is told) or connection::change().
//
// A new protocol. Where answers come in the order of the requests (RESP; ZooKeeper's jute, with its watch events as
// pushes) there is nothing to be written but a `framing` (channel.hpp) of some twenty lines, which says where
// a frame ends and whether it is a push; net::channel does the rest with ordered_protocol:
//
//   class jute_framing final : public net::framing {
//     result<frame> next(std::string_view bytes) override {
//       if (bytes.size() < 8) return frame{};                           // length and xid
//       const std::size_t length = 4 + big_endian(bytes);
//       if (length > most) return error{errc::protocol, "..."};
//       if (bytes.size() < length) return frame{};
//       return frame{.length = length, .push = xid_of(bytes) == -1};    // watch event; pings are answered in order
//     }
//   };
//   net::channel_options options;
//   options.make_framing = [] { return std::make_unique<jute_framing>(); };
//   options.make_greeting = [&] { return connect_request(session); };   // the first frame of every connection
//   options.greeting_replies = 1;
//   options.greeted = [&](std::string_view frames) { return session.resume(frames); };
//
// Where they come in any order, derive from `protocol`; grpc/http2_protocol is the example.
#pragma once

#include "net/blocked_call.hpp"

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace holdfast::net {

// What one call of a protocol has come to. Costs no memory of its own: the list goes through the calls themselves.
class protocol_events {
 public:
  // soon: may wait for a few milliseconds, so that a thread that sends in a loop does not wake the reactor each time.
  enum class urgency : std::uint8_t { none, soon, now };

  bool greeted = false;  // of receive(): the server has accepted the greeting
  bool has_output =
      false;  // something is to be sent although no call brought it: an acknowledgement, a cancellation
  bool is_retired = false;  // takes no new calls; the channel makes another connection for them
  std::optional<error> failure;               // the connection is of no use any more
  steady_time check_at = steady_time::max();  // on_time() is wanted by then

  // Answered, or failed (blocked_call::failure): its thread shall go on.
  void done(blocked_call& call) noexcept {
    (first_done_ == nullptr ? first_done_ : last_done_->next_done) = &call;
    last_done_ = &call;
  }
  blocked_call* take_done() noexcept {
    auto* const first = first_done_;
    if (first != nullptr) first_done_ = std::exchange(first->next_done, nullptr);
    return first;
  }

  // run_callbacks() has something to do.
  void callbacks(urgency when) noexcept { callbacks_ = std::max(callbacks_, when); }
  urgency take_callbacks() noexcept { return std::exchange(callbacks_, urgency::none); }

  void check_by(steady_time when) noexcept { check_at = std::min(check_at, when); }

 private:
  blocked_call* first_done_ = nullptr;
  blocked_call* last_done_ = nullptr;
  urgency callbacks_ = urgency::none;
};

class protocol {
 public:
  virtual ~protocol() = default;
  protocol(const protocol&) = delete;
  protocol& operator=(const protocol&) = delete;

  // ---- Out

  // Appends what is to be sent to `chunk`, all or a good part of it; nothing when there is nothing. From now on it may
  // have reached the network.
  virtual void take_output(std::string& chunk, protocol_events& out) = 0;
  // The writer has stopped: the last `unsent` bytes of what was taken are certainly still here. 0: all may have left.
  virtual void on_written(std::size_t unsent, protocol_events& out) {
    static_cast<void>(unsent), static_cast<void>(out);
  }

  // What was still here is given to the network again.
  virtual void on_retry() noexcept {}

  // ---- In

  // Of the reading thread, without the mutex.
  virtual void parse(std::string_view bytes) { static_cast<void>(bytes); }
  // Returns how many of `bytes` are done with; the others come again with more behind them. The first time `bytes` are
  // empty: the greeting is out.
  virtual std::size_t receive(std::string_view bytes, protocol_events& out) = 0;
  // The connection counts as open.
  virtual void on_up(std::uint64_t generation) { static_cast<void>(generation); }
  // Is an answer due that only the reactor will read, and should at once?
  virtual bool is_urgent() const noexcept = 0;

  // ---- The end of calls

  virtual void on_time(steady_time now, protocol_events& out) = 0;
  // The deadline of this call has passed, or it was stopped: sets its failure.
  virtual void abandon(blocked_call& call, protocol_events& out) = 0;
  // `was_up`: on_up() was called. Nothing but run_callbacks() is called afterwards.
  virtual void on_lost(const error& why, bool was_up, protocol_events& out) = 0;

  // Runs the callbacks that are due. Of the reactor's thread; lets go of the mutex while it calls them, and one of them
  // may lead here again.
  virtual void run_callbacks(std::unique_lock<std::mutex>& locked) noexcept = 0;

 protected:
  protocol() = default;
};

// ---- For protocols

bool passed(steady_time deadline);
long milliseconds_since(steady_time then);
// Why a call is not begun: it is out of time, was stopped, or too many bytes wait to be sent.
std::optional<error> refusal(std::string_view server, const limits& until, std::size_t unsent);
error unreachable(std::string_view server, errc code, std::string_view why);

}  // namespace holdfast::net
