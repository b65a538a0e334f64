// The connection of a gRPC channel: HTTP/2 on a net::connection (which see for threads). nghttp2 is one
// state machine for both directions, so it is fed and drained with the mutex held.
#pragma once

#include "grpc/callback_queue.hpp"
#include "grpc/codec.hpp"
#include "net/connection.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace holdfast::grpc {

class http2_connection_owner : public net::connection_owner {
 public:
  // It takes no new calls, and ends when the old ones are done. Called with the connection's mutex held.
  virtual void retired(const net::connection& which) noexcept = 0;

 protected:
  ~http2_connection_owner() = default;
};

class http2_connection final : public net::connection, private codec_sink {
 public:
  enum class writer : std::uint8_t { reactor, caller };  // send(), send_now()
  struct request {
    std::string_view method;
    std::string_view message;
    const header_list& extra;
  };

  http2_connection(net::reactor::impl& loop, std::shared_ptr<const channel_options> options,
                   const std::shared_ptr<http2_connection_owner>& owner, std::uint32_t serial);

  static std::uint32_t serial_of(channel::stream_id which) noexcept {
    return static_cast<std::uint32_t>(which >> 32U);
  }

  // Nothing, or false: this connection takes no calls any more; ask the owner for another.
  std::optional<result<reply>> call(const request& what, const net::limits& until);
  bool send(const request& what, const net::limits& until, reply_handler& done, writer by) noexcept;
  std::optional<channel::stream_id> open_stream(const request& what,
                                                stream_listener& listener) noexcept;

  bool write(channel::stream_id to, std::string_view message) noexcept;
  void cancel(channel::stream_id which) noexcept;

 private:
  // A call that is waited for by a thread, a handler or a listener.
  struct pending_call : exchange {
    net::blocked_call* thread = nullptr;
    reply_handler* handler = nullptr;
    stream_listener* listener = nullptr;
    std::uint64_t number = 0;  // in pending_
    bool urgent = false;       // only the reactor will read the answer, and it should do so at once
    steady_time since{};
    steady_time deadline = steady_time::max();
    std::string message{};  // a copy, where the caller does not wait
    std::unique_ptr<net::stop_watch> on_stop{};
  };
  struct blocked_unary : net::blocked_call {
    pending_call what;
  };

  // What a connection wants to know.
  std::string_view greeting() const noexcept override { return codec_.preface(); }
  result<bool> greeted() override;
  bool has_output() const noexcept override { return codec_.has_output(); }
  void take_output(std::string& chunk) override;
  std::optional<error> distribute(wake_list& woken) override;
  bool owes_urgently() const noexcept override { return urgent_ > 0; }
  steady_time check(steady_time now, wake_list& woken) override;
  void give_up(net::blocked_call& self) override;
  void fail_calls(const error& why, bool was_ready, wake_list& woken) override;
  void run_callbacks(lock& locked) override;

  // What the codec finds out.
  void on_message(exchange& of, std::string_view message) override;
  void on_finished(exchange& which) override;

  // Calls (connection.cpp).
  std::optional<error> no_room(const net::limits& until) const;
  bool begin(pending_call& what, const request& with);
  channel::stream_id keep(std::unique_ptr<pending_call> what);
  pending_call* find(std::uint64_t number) noexcept;
  void finish(pending_call& which, wake_list& woken);
  error given_up(pending_call& which, bool stopped);
  void stop_pending(std::uint64_t number) noexcept;

  // Does the server live? (http2_connection_silence.cpp)
  nanoseconds half_silence() const noexcept { return options_->longest_silence / 2; }
  void suspect(steady_time now);
  bool may_ping(steady_time now) const;
  void ping(steady_time now);
  steady_time check_silence(steady_time now, wake_list& woken);
  void answer_pings_soon(steady_time now);

  void retire();
  void end_if_done();

  const std::shared_ptr<const channel_options> options_;
  const std::weak_ptr<http2_connection_owner> owner_;

  // Guarded by guard_.
  codec codec_;
  bool retired_ = false;
  wake_list* woken_ = nullptr;  // in feed(): where to note whom to wake
  wake_list late_;            // those that are finished otherwise
  std::unordered_map<std::uint64_t, std::unique_ptr<pending_call>>
      pending_;  // handlers and listeners
  std::uint64_t last_number_;
  std::size_t urgent_ = 0;
  callback_queue callbacks_;
  steady_time heard_at_{};                // when something came in
  std::optional<steady_time> ping_at_;    // of the ping that is not answered yet
  std::optional<steady_time> last_ping_;  // answered or not
  std::uint64_t answers_at_ping_ = 0;
  bool pong_planned_ = false;
  std::optional<steady_time> suspected_;  // a call was given up, and nothing has come in since

  callback_queue running_;  // of the reactor's thread
};

}  // namespace holdfast::grpc
