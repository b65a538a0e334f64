// What the buyers of one sale write down, in memory that all their processes share: who bought what, and when.
//
// It belongs to no scheme. The judge counts from it and from the stock that is left, never from what a lock says. The
// same memory carries the fault: the one who is to be struck says so here, at a moment when it holds the lock, and
// waits there until it is killed or stopped.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace holdfast::cli::flash {

// Of the steady clock, the same for all processes; 0: not yet.
using instant = std::int64_t;
inline instant now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

enum class order_state : std::int32_t {
  sent,     // the write is on its way; its buyer may have died before the answer
  done,     // the store has it
  refused,  // the store did not take it: nothing was sold
};

struct order {
  instant wanted = 0;     // when the buyer came
  instant saw = 0;        // just before it read how many there are
  instant wrote = 0;      // when the answer to its write was there
  std::int64_t left = 0;  // what it wrote
  std::int32_t shelf = 0;
  order_state state = order_state::sent;
};

enum class fault : std::int32_t { none, kill, pause };
std::string_view word(fault what) noexcept;

// Where in its work a buyer can be struck.
enum class weak_spot : std::int32_t {
  thinking,  // between its read and its write
  between,   // between the two commands of a lock that takes two
};

struct buyer_row {
  std::atomic<std::uint32_t> orders{0};   // written so far, refused ones included
  std::atomic<std::uint32_t> retries{0};  // another was faster; refusals that are not in the record
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_full{false};  // there was no room for one more order
  char failed[256] = {};             // why it ended early
};

inline constexpr std::size_t most_shelves = 16;

struct board_head {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<instant> opened{0};
  std::atomic<bool> closing{false};  // buyers stop
  std::atomic<bool> leave{false};    // processes end
  std::atomic<std::int64_t> sold{0};
  std::array<std::atomic<std::int64_t>, most_shelves> sold_from{};
  // How long the store may take until others have the lock of a dead or silent holder.
  std::atomic<std::int64_t> takeover_ns{0};
  char failed[256] = {};  // why a process could not take part

  // ---- the fault
  std::atomic<fault> armed{
      fault::none};  // strikes the next buyer at that spot, once so much is sold
  weak_spot spot = weak_spot::thinking;
  std::int64_t armed_after = 0;
  std::int32_t struck_shelf = 0;         // where it was
  std::atomic<std::int32_t> struck{-1};  // the buyer's number
  std::atomic<instant> struck_at{0};     // killed, or stopped
  std::atomic<instant> resumed_at{0};
};

// The head, a row for each buyer, and behind them the orders of each.
class board {
 public:
  board(std::size_t buyers, std::size_t orders_each);
  ~board();
  board(const board&) = delete;
  board& operator=(const board&) = delete;

  board_head& head() const noexcept { return *head_; }
  buyer_row& row(std::size_t buyer) const noexcept { return rows_[buyer]; }
  order& at(std::size_t buyer, std::size_t index) const noexcept {
    return orders_[buyer * each_ + index];
  }
  std::size_t buyers() const noexcept { return buyers_; }
  std::size_t orders_each() const noexcept { return each_; }

 private:
  std::size_t buyers_, each_, size_;
  void* memory_;
  board_head* head_;
  buyer_row* rows_;
  order* orders_;
};

}  // namespace holdfast::cli::flash
