// Requests and replies in one order, and frames that come unasked (pushes): what a net::channel speaks. The framing
// says where a frame ends; the rest is here.
#pragma once

#include "net/callback_queue.hpp"
#include "net/channel.hpp"
#include "net/pending_replies.hpp"
#include "net/protocol.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::net {

class ordered_protocol final : public protocol {
 public:
  // `listener` is set to null when the channel is closed.
  ordered_protocol(std::shared_ptr<const channel_options> options,
                   std::shared_ptr<const std::atomic<channel_listener*>> listener);

  struct request {
    std::string_view bytes;
    unsigned replies;
    const limits& until;
    std::size_t backlog;  // connection::backlog()
  };
  void begin(const request& what, blocked_exchange& self, protocol_events& out);
  // Returns the number of the pending reply; nothing: it was refused, and the handler will be told. `urgent`: only the
  // reactor will read the reply, and should at once.
  std::optional<std::uint64_t> begin(const request& what, reply_handler& done, bool urgent,
                                     protocol_events& out);
  void keep(std::uint64_t number, std::unique_ptr<stop_watch> stop);
  void cancel(std::uint64_t number, protocol_events& out) noexcept;

 private:
  struct frame {
    std::string_view bytes;
    bool push;
  };

  void take_output(std::string& chunk, protocol_events& out) override;
  void on_written(std::size_t unsent, protocol_events& out) override;
  void on_retry() noexcept override { pending_.certainly_unsent(0); }
  void parse(std::string_view bytes) override;
  std::size_t receive(std::string_view bytes, protocol_events& out) override;
  void on_up(std::uint64_t generation) override {
    generation_ = generation;
    callbacks_.up(generation);
  }
  bool is_urgent() const noexcept override { return pending_.urgent() > 0; }
  void on_time(steady_time now, protocol_events& out) override;
  void abandon(blocked_call& call, protocol_events& out) override;
  void on_lost(const error& why, bool was_up, protocol_events& out) override;
  void run_callbacks(std::unique_lock<std::mutex>& locked) noexcept override;

  // Calls and their end (ordered_protocol.cpp).
  const std::string& server() const noexcept { return options_->description; }
  std::optional<error> refuse(const request& what) const;
  error give_up(pending_reply& which, bool stopped, protocol_events& out);
  void check_silence(steady_time now, protocol_events& out);
  error fate(const pending_reply& which, const error& why, bool was_up) const;

  // Replies (ordered_protocol_replies.cpp).
  void receive_greeting(protocol_events& out);
  std::optional<error> judge_greeting(protocol_events& out);
  std::optional<error> receive_frames(protocol_events& out);
  void finish(pending_reply& which, std::string_view last, protocol_events& out);
  void finish_front(protocol_events& out);

  const std::shared_ptr<const channel_options> options_;
  const std::shared_ptr<const std::atomic<channel_listener*>> listener_;

  std::uint64_t generation_ = 0;  // 0: the greeting has not been accepted yet
  pending_replies pending_;
  callback_queue callbacks_;
  callback_queue running_;  // kept for its memory
  // Since when nothing has come in while a call is abandoned, and for how long that may go on.
  steady_time silent_since_{};
  std::uint64_t received_ = 0, received_at_silence_ = 0;
  nanoseconds patience_{};

  // Of parse().
  const std::unique_ptr<framing> framing_;
  std::vector<frame> frames_;
  std::size_t framed_bytes_ = 0;
  std::optional<error> broken_;  // what it stumbled over

  // Of the greeting.
  bool greeting_taken_ = false;
  bool is_greeted_ = false;
  unsigned greeting_frames_ = 0;
  std::string greeting_answer_;
};

}  // namespace holdfast::net
