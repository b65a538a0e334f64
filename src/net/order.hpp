// Who is owed which answer on one connection: the calls in the order of their requests, and how far the requests have
// got on their way out. Pure bookkeeping; whoever owns it guards it.
#pragma once

#include "net/caller.hpp"
#include "net/channel.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace holdfast::net {

// A thread in exchange().
struct exchange_caller : caller {
  explicit exchange_caller(std::string& where) : into(where) {}
  std::string& into;
  std::uint64_t number = 0;  // of its place
};

// One call's place in the order. Neither a caller nor a handler: a hole, which swallows a late answer.
struct place {
  std::uint64_t begin = 0;  // of its request, in the stream of all bytes that were ever to be sent
  std::size_t length = 0;   // of its request
  unsigned missing = 0;     // frames to come
  bool urgent = false;  // nobody but the reactor will fetch the answer, and it should do so at once
  bool withdrawn = false;  // never sent, never answered
  exchange_caller* caller = nullptr;
  reply_handler* handler = nullptr;
  steady_time since{};
  steady_time deadline = steady_time::max();
  std::string frames{};  // of a handler's call with several answers, those that have come
  std::unique_ptr<stop_watch> on_stop{};

  bool is_hole() const noexcept { return caller == nullptr && handler == nullptr; }
};

class order {
 public:
  // Appends the request to what is to be sent, and its place to the queue. Returns the number of the place.
  std::uint64_t add(place what, std::string_view request);

  bool empty() const noexcept { return places_.empty(); }
  place& front() noexcept { return places_.front(); }
  const place& front() const noexcept { return places_.front(); }
  void pop_front();
  place* find(std::uint64_t number) noexcept;
  std::deque<place>& all() noexcept { return places_; }
  std::uint64_t first_number() const noexcept { return first_; }

  // Makes a hole of a place whose call has given up. True: the request has not left and never will.
  bool give_up(place& which);

  std::size_t holes() const noexcept { return holes_; }
  std::size_t urgent() const noexcept { return urgent_; }

  // What is to be sent and no writer has picked up yet.
  std::size_t unsent() const noexcept { return out_.size(); }
  // Moves it all into `chunk`, whose memory is used again. From now on it may have reached the network.
  void pick_up(std::string& chunk);
  // The last `bytes` of what was picked up certainly have not, until they are tried again.
  void not_touched(std::size_t bytes) noexcept { touched_ = picked_ - bytes; }
  void tried_again() noexcept { touched_ = picked_; }
  bool touched(const place& which) const noexcept { return which.begin < touched_; }
  bool picked_up(const place& which) const noexcept {
    return which.begin + which.length <= picked_;
  }
  void clear();

 private:
  std::deque<place> places_;
  std::uint64_t first_ = 0;  // number of places_.front()
  std::size_t holes_ = 0;
  std::size_t urgent_ = 0;
  std::string out_;
  std::uint64_t picked_ = 0;   // how many bytes of the stream a writer has picked up
  std::uint64_t touched_ = 0;  // how many of them may have reached the network
};

}  // namespace holdfast::net
