// The connection of a channel: requests in one order, answers in the same. See connection.hpp for threads.
#pragma once

#include "net/callback_queue.hpp"
#include "net/channel.hpp"
#include "net/connection.hpp"
#include "net/pending_replies.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::net {

// The channel, as its connection sees it.
class ordered_connection_owner : public connection_owner {
 public:
  virtual channel_listener*
  listener() noexcept = 0;  // null after the channel was closed; called without the mutex

 protected:
  ~ordered_connection_owner() = default;
};

class ordered_connection final : public connection {
 public:
  enum class writer : std::uint8_t { reactor, caller };  // send(), send_now()

  ordered_connection(reactor::impl& loop, std::shared_ptr<const channel_options> options,
                     const std::shared_ptr<ordered_connection_owner>& owner);

  // Nothing: this connection is gone; ask the owner for another.
  std::optional<result<std::uint64_t>> exchange(std::string_view request, unsigned replies,
                                                const limits& until, std::string& into);
  // False: as above.
  bool send(std::string_view request, unsigned replies, const limits& until, reply_handler& done,
            writer by) noexcept;

 private:
  struct piece {
    std::string_view bytes;
    bool push;
  };

  // What a connection wants to know.
  std::string_view greeting() const noexcept override { return options_->greeting; }
  result<bool> greeted() override;
  void became_ready() override { callbacks_.up(generation_); }
  bool has_output() const noexcept override { return pending_.unsent() > 0; }
  void take_output(std::string& chunk) override { pending_.take_output(chunk); }
  void certainly_unsent(std::size_t bytes) noexcept override { pending_.certainly_unsent(bytes); }
  void tried_again() noexcept override { pending_.tried_again(); }
  void written(lock& locked) override;
  void digest() override;
  std::optional<error> distribute(wake_list& woken) override;
  bool owes_urgently() const noexcept override { return pending_.urgent() > 0; }
  steady_time check(steady_time now, wake_list& woken) override;
  void give_up(blocked_call& self) override;
  void fail_calls(const error& why, bool was_ready, wake_list& woken) override;
  void run_callbacks(lock& locked) override;

  // Calls and their end (ordered_connection.cpp).
  void cancel(std::uint64_t number) noexcept;
  void give_up(pending_reply& which, bool stopped);
  error abandon(pending_reply& which, bool stopped);
  steady_time check_silence(steady_time now, wake_list& woken);
  error fate(const pending_reply& which, const error& why, bool was_ready) const;

  // Answers (ordered_connection_answers.cpp).
  void cut();
  void take_greeting();
  std::optional<error> distribute_pieces(wake_list& woken);
  void finish(pending_reply& which, std::string_view last, wake_list& woken);
  void finish_front(wake_list& woken);

  const std::shared_ptr<const channel_options> options_;
  const std::weak_ptr<ordered_connection_owner> owner_;

  // Guarded by guard_.
  pending_replies pending_;
  callback_queue callbacks_;
  // Since when nothing has come in while a call is abandoned, and for how long that may go on.
  steady_time silent_since_{};
  std::uint64_t received_at_silence_ = 0;
  nanoseconds patience_{};

  // Of the reader.
  const std::unique_ptr<framing> framing_;
  std::vector<piece> pieces_;
  std::size_t cut_bytes_ = 0;
  std::optional<error> broken_;  // what cut() stumbled over

  // Of the reactor's thread while opening.
  unsigned greeting_frames_ = 0;
  std::string greeting_answer_;
  callback_queue running_;
};

}  // namespace holdfast::net
