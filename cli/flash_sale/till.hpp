// What a buyer has in its hand: its record on the board, and the moment in which a fault may strike it.
//
// Every recipe sells in the same three steps (read, compute, write) and differs only in what it puts around them:
//
//   return till.sell([&] { return read_the_stock(); },
//                    [&](std::int64_t left) { return write_the_stock(left); });
#pragma once

#include "flash_sale/board.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

namespace holdfast::cli::flash {

enum class bought {
  yes,
  sold_out,  // the buyer goes home
  again,     // nothing was changed: come back
};

class till {
 public:
  till(board& on, std::size_t buyer, std::chrono::nanoseconds think, std::stop_token closing)
      : board_(on), buyer_(buyer), think_(think), closing_(std::move(closing)) {}

  // ---- for recipes
  // `read` tells how many there are, or nothing when the store refuses to tell us (we are no holder any more). `write`
  // tells whether the store took the new number.
  template <class Read, class Write>
  bought sell(Read&& read, Write&& write, std::int32_t shelf = 0) {
    looks(shelf);
    const std::optional<std::int64_t> amount = read();
    if (!amount) return was_refused(shelf, 0);
    if (*amount <= 0) return bought::sold_out;
    thinks();
    return sends(shelf, *amount - 1, write);
  }
  // The steps of sell, for recipes in which they are other statements.
  void looks(std::int32_t shelf = 0) noexcept {
    saw_ = now();
    shelf_ = shelf;
  }
  void thinks();
  // The write; what it wrote is told by the caller, who knows it before.
  template <class Write>
  bought sends(std::int32_t shelf, std::int64_t left, Write&& write) {
    auto* const mine = next_order(shelf, left);
    if (mine == nullptr) return bought::sold_out;
    const bool taken = write(left);
    settle(*mine, taken);
    return taken ? bought::yes : bought::again;
  }
  // A write that tells us the new number itself; nothing: there was none left.
  template <class Write>
  bought sends_blind(Write&& write) {
    auto* const mine = next_order(0, 0);
    if (mine == nullptr) return bought::sold_out;
    const std::optional<std::int64_t> left = write();
    if (left) mine->left = *left;
    if (!left) return drop(), bought::sold_out;
    settle(*mine, true);
    return bought::yes;
  }
  // Between the two commands of a lock that takes two.
  void between_commands() { strike_if_armed(weak_spot::between); }
  // A busy lock is asked for again after one to four milliseconds.
  void waits_a_little();
  bool is_closing() const noexcept { return closing_.stop_requested(); }
  std::stop_token closing() const noexcept { return closing_; }

  // ---- for the program around them
  void comes() noexcept { wanted_ = now(); }
  void noted_again() noexcept { ++row().retries; }
  void ends() noexcept { row().is_over = true; }
  void fails(std::string_view why) noexcept;

 private:
  buyer_row& row() const noexcept { return board_.row(buyer_); }
  // Null when the record is full: then the buyer goes home.
  order* next_order(std::int32_t shelf, std::int64_t left) noexcept;
  void settle(order& mine, bool taken) noexcept;
  void drop() noexcept { --row().orders; }
  bought was_refused(std::int32_t shelf, std::int64_t left) noexcept;
  void strike_if_armed(weak_spot here);
  bool was_struck_since_it_looked() const noexcept;

  board& board_;
  std::size_t buyer_;
  std::chrono::nanoseconds think_;
  std::stop_token closing_;
  instant wanted_ = 0, saw_ = 0;
  std::int32_t shelf_ = 0;
};

}  // namespace holdfast::cli::flash
