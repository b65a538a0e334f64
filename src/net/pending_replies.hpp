// The replies that are due on one connection, in the order of their requests, and how far the requests have got on
// their way out. Pure bookkeeping; the owner guards it.
#pragma once

#include "net/blocked_call.hpp"
#include "net/channel.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace holdfast::net {

// A thread in exchange().
struct blocked_exchange : blocked_call {
  explicit blocked_exchange(std::string& where) : into(where) {}
  std::string& into;
  std::uint64_t number = 0;  // of its pending reply
};

// What one call is owed. Neither a caller nor a handler: the call was abandoned, and its late reply is thrown away.
struct pending_reply {
  std::uint64_t begin = 0;  // of its request, in the stream of all bytes that were ever to be sent
  std::size_t length = 0;   // of its request
  unsigned missing = 0;     // frames to come
  bool urgent = false;      // only the reactor will read the reply, and it should do so at once
  bool withdrawn = false;   // never sent, never answered
  blocked_exchange* caller = nullptr;
  reply_handler* handler = nullptr;
  steady_time since{};
  steady_time deadline = steady_time::max();
  std::string frames{};  // of a handler's call with several answers, those that have come
  std::unique_ptr<stop_watch> on_stop{};

  bool is_abandoned() const noexcept { return caller == nullptr && handler == nullptr; }
};

class pending_replies {
 public:
  // Appends the request to what is to be sent, and its reply to the queue. Returns the number of that.
  std::uint64_t add(pending_reply what, std::string_view request);

  bool empty() const noexcept { return replies_.empty(); }
  pending_reply& front() noexcept { return replies_.front(); }
  const pending_reply& front() const noexcept { return replies_.front(); }
  void pop_front();
  pending_reply* find(std::uint64_t number) noexcept;
  std::deque<pending_reply>& all() noexcept { return replies_; }
  std::uint64_t first_number() const noexcept { return first_; }

  // Its call does not wait any more. True: the request has not left and never will.
  bool abandon(pending_reply& which);

  std::size_t abandoned() const noexcept { return abandoned_; }
  std::size_t urgent() const noexcept { return urgent_; }

  // What is to be sent and no writer has taken yet.
  std::size_t unsent() const noexcept { return out_.size(); }
  // Moves it all into `chunk`, whose memory is used again. From now on it may have reached the network.
  void take_output(std::string& chunk);
  // The last `bytes` of what was taken certainly have not, until they are tried again.
  void certainly_unsent(std::size_t bytes) noexcept { maybe_sent_ = taken_ - bytes; }
  bool maybe_sent(const pending_reply& which) const noexcept { return which.begin < maybe_sent_; }
  bool is_taken(const pending_reply& which) const noexcept {
    return which.begin + which.length <= taken_;
  }
  void clear();

 private:
  std::deque<pending_reply> replies_;
  std::uint64_t first_ = 0;  // number of replies_.front()
  std::size_t abandoned_ = 0;
  std::size_t urgent_ = 0;
  std::string out_;
  std::uint64_t taken_ = 0;       // how many bytes of the stream a writer has taken
  std::uint64_t maybe_sent_ = 0;  // how many of them may have reached the network
};

}  // namespace holdfast::net
