// gRPC as a protocol of a net::connection: the codec, the calls and streams that are open, and whether the server
// lives. nghttp2 is one state machine for both directions, so it is fed and drained with the connection's mutex held;
// there is nothing to parse() without it.
#pragma once

#include "grpc/callback_queue.hpp"
#include "grpc/codec.hpp"
#include "net/protocol.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace holdfast::grpc {

// A call or stream that is open, and what waits for its answer: a thread, a handler or a listener.
struct pending_call : exchange {
  net::blocked_call* thread = nullptr;
  reply_handler* handler = nullptr;
  stream_listener* listener = nullptr;
  std::uint64_t number = 0;  // of a handler's or listener's
  bool urgent = false;       // only the reactor will read the answer, and it should do so at once
  steady_time since{};
  steady_time deadline = steady_time::max();
  std::string message{};  // a copy, where the caller does not wait
  std::unique_ptr<net::stop_watch> on_stop{};
};

// A thread in channel::call().
struct blocked_unary : net::blocked_call {
  pending_call what;
};

class http2_protocol final : public net::protocol, private codec_sink {
 public:
  http2_protocol(std::shared_ptr<const channel_options> options, std::uint32_t serial);

  static std::uint32_t serial_of(channel::stream_id which) noexcept {
    return static_cast<std::uint32_t>(which >> 32U);
  }

  struct request {
    std::string_view method;
    std::string_view message;
    const header_list& extra;
    const net::limits& until;
    std::size_t backlog;  // connection::backlog()
  };
  // False: this connection takes no calls any more.
  bool begin(const request& what, blocked_unary& self, net::protocol_events& out);
  // As above; `made` is taken if it was begun, and its number known then. A refusal goes to the handler.
  bool begin(const request& what, std::unique_ptr<pending_call>& made, net::protocol_events& out);
  void keep(channel::stream_id number, std::unique_ptr<net::stop_watch> stop);
  void stop(channel::stream_id number, net::protocol_events& out) noexcept;

  // Of streams. False: it has ended.
  bool write(channel::stream_id to, std::string_view message, net::protocol_events& out);
  void cancel(channel::stream_id which, net::protocol_events& out);

 private:
  void take_output(std::string& chunk, net::protocol_events& out) override;
  std::size_t receive(std::string_view bytes, net::protocol_events& out) override;
  void on_up(std::uint64_t) override { is_up_ = true; }
  bool is_urgent() const noexcept override { return urgent_ > 0; }
  void on_time(steady_time now, net::protocol_events& out) override;
  void abandon(net::blocked_call& call, net::protocol_events& out) override;
  void on_lost(const error& why, bool was_up, net::protocol_events& out) override;
  void run_callbacks(std::unique_lock<std::mutex>& locked) noexcept override;

  // What the codec finds out.
  void on_message(exchange& of, std::string_view message) override;
  void on_finished(exchange& which) override;

  // Calls (http2_protocol.cpp).
  const std::string& server() const noexcept { return options_->description; }
  std::optional<error> no_room(const request& what) const;
  bool begin(pending_call& what, const request& with, net::protocol_events& out);
  pending_call* find(std::uint64_t number) noexcept;
  void finish(pending_call& which, net::protocol_events& out);
  error given_up(pending_call& which, bool stopped, net::protocol_events& out);

  // Does the server live? (http2_protocol_silence.cpp)
  nanoseconds half_silence() const noexcept { return options_->longest_silence / 2; }
  void suspect(steady_time now, net::protocol_events& out);
  bool may_ping(steady_time now) const;
  void ping(steady_time now, net::protocol_events& out);
  void check_silence(steady_time now, net::protocol_events& out);
  void answer_pings_soon(steady_time now, net::protocol_events& out);
  void answer_pings(steady_time now, net::protocol_events& out);

  void retire(net::protocol_events& out);
  void end_if_done(net::protocol_events& out);

  const std::shared_ptr<const channel_options> options_;

  codec codec_;
  bool is_up_ = false;
  bool is_retired_ = false;
  bool greeting_taken_ = false;
  net::protocol_events* events_ = nullptr;  // while the codec may call back
  std::unordered_map<std::uint64_t, std::unique_ptr<pending_call>>
      pending_;  // of handlers and listeners
  std::uint64_t last_number_;
  std::size_t urgent_ = 0;
  callback_queue callbacks_;
  callback_queue running_;                // kept for its memory
  steady_time heard_at_{};                // when something came in
  std::optional<steady_time> ping_at_;    // of the ping that is not answered yet
  std::optional<steady_time> last_ping_;  // answered or not
  std::uint64_t answers_at_ping_ = 0;
  std::optional<steady_time> pongs_at_;   // when the server's pings are to be answered
  std::optional<steady_time> suspected_;  // a call was given up, and nothing has come in since
};

}  // namespace holdfast::grpc
