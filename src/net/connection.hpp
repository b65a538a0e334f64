// The connection of a channel: requests in one order, answers in the same. See conduit.hpp for who writes and reads.
#pragma once

#include "net/channel.hpp"
#include "net/conduit.hpp"
#include "net/order.hpp"
#include "net/outbox.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::net {

// The channel, as its connection sees it.
class connection_owner : public conduit_owner {
 public:
  virtual channel_listener*
  listener() noexcept = 0;  // null after the channel was closed; called without the mutex

 protected:
  ~connection_owner() = default;
};

class connection final : public conduit {
 public:
  enum class pace : std::uint8_t { reactor_sends, caller_sends };  // send(), send_now()

  connection(reactor::impl& loop, std::shared_ptr<const channel_options> options,
             const std::shared_ptr<connection_owner>& owner);

  // Nothing: this connection is gone; ask the owner for another.
  std::optional<result<std::uint64_t>> exchange(std::string_view request, unsigned replies,
                                                const limits& until, std::string& into);
  // False: as above.
  bool send(std::string_view request, unsigned replies, const limits& until, reply_handler& done,
            pace how) noexcept;

 private:
  struct piece {
    std::string_view bytes;
    bool push;
  };

  // What a conduit wants to know.
  std::string_view greeting() const noexcept override { return options_->greeting; }
  result<bool> greeted() override;
  void became_ready() override { outbox_.up(generation_); }
  bool has_unsent() const noexcept override { return order_.unsent() > 0; }
  void pick_up(std::string& chunk) override { order_.pick_up(chunk); }
  void not_touched(std::size_t bytes) noexcept override { order_.not_touched(bytes); }
  void tried_again() noexcept override { order_.tried_again(); }
  void written(lock& locked) override;
  void digest() override;
  std::optional<error> distribute(callers& woken) override;
  bool owes_urgently() const noexcept override { return order_.urgent() > 0; }
  steady_time check(steady_time now, callers& woken) override;
  void give_up(caller& self) override;
  void fail_calls(const error& why, bool was_ready, callers& woken) override;
  void tell(lock& locked) override;

  // Calls and their end (connection.cpp).
  void cancel(std::uint64_t number) noexcept;
  void give_up(place& which, bool stopped);
  error make_hole(place& which, bool stopped);
  steady_time check_silence(steady_time now, callers& woken);
  error fate(const place& which, const error& why, bool was_ready) const;

  // Answers (connection_answers.cpp).
  void cut();
  void take_greeting();
  std::optional<error> distribute_pieces(callers& woken);
  void finish(place& which, std::string_view last, callers& woken);
  void finish_front(callers& woken);

  const std::shared_ptr<const channel_options> options_;
  const std::weak_ptr<connection_owner> owner_;

  // Guarded by guard_.
  order order_;
  outbox outbox_;
  // Since when nothing has come in while there is a hole, and for how long that may go on.
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
  outbox telling_;
};

}  // namespace holdfast::net
