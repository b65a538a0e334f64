#include "flash_sale/till.hpp"

#include <algorithm>
#include <random>
#include <thread>

namespace holdfast::cli::flash {

using namespace std::chrono_literals;

void till::thinks() {
  // Slept, not computed: the buyers should meet in the store and not in the queue for a processor.
  if (think_ > 0ns) std::this_thread::sleep_for(think_);
  strike_if_armed(weak_spot::thinking);
}

void till::waits_a_little() {
  thread_local std::minstd_rand dice{std::random_device{}()};
  std::this_thread::sleep_for(
      std::chrono::microseconds{std::uniform_int_distribution<int>{1000, 4000}(dice)});
}

void till::fails(std::string_view why) noexcept {
  auto& text = row().failed;
  std::copy_n(why.begin(), std::min(why.size(), sizeof text - 1), text);
  row().is_over = true;
}

order* till::next_order(std::int32_t shelf, std::int64_t left) noexcept {
  const auto index = row().orders.load();
  if (index == board_.orders_each()) {
    row().is_full = true;
    return nullptr;
  }
  auto& mine = board_.at(buyer_, index);
  mine = {wanted_, saw_, 0, left, shelf, order_state::sent};
  row().orders = index + 1;
  return &mine;
}

void till::settle(order& mine, bool taken) noexcept {
  mine.wrote = now();
  mine.state = taken ? order_state::done : order_state::refused;
  if (taken) {
    ++board_.head().sold;
    ++board_.head().sold_from[static_cast<std::size_t>(mine.shelf)];
  } else if (!was_struck_since_it_looked()) {
    drop();  // everyday life of an optimistic buyer; it is counted as a retry
  }
}

bought till::was_refused(std::int32_t shelf, std::int64_t left) noexcept {
  if (was_struck_since_it_looked())
    if (auto* const mine = next_order(shelf, left)) settle(*mine, false);
  return bought::again;
}

bool till::was_struck_since_it_looked() const noexcept {
  const auto at = board_.head().struck_at.load();
  return at != 0 && saw_ < at && board_.head().resumed_at != 0;
}

void till::strike_if_armed(weak_spot here) {
  auto& head = board_.head();
  auto kind = head.armed.load();
  if (kind == fault::none || head.spot != here || head.sold < head.armed_after) return;
  if (!head.armed.compare_exchange_strong(kind, fault::none)) return;
  head.struck_shelf = shelf_;
  head.struck = static_cast<std::int32_t>(buyer_);
  // Here we are killed, or stopped and some time later told to go on.
  while (head.resumed_at == 0 && !head.leave) std::this_thread::sleep_for(1ms);
}

}  // namespace holdfast::cli::flash
