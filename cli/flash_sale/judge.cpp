#include "flash_sale/judge.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace holdfast::cli::flash {

namespace {

using std::chrono::nanoseconds;

template <class See>
void for_each_order(const ledger& of, See&& see) {
  for (std::size_t buyer = 0; buyer < of.orders.size(); ++buyer)
    for (const auto& one : of.orders[buyer]) see(one, of.process_of[buyer]);
}

std::int64_t written_twice(const ledger& of) {
  std::map<std::pair<std::int32_t, std::int64_t>, std::int64_t> times;
  for_each_order(of, [&](const order& one, int) {
    if (one.state == order_state::done) ++times[{one.shelf, one.left}];
  });
  std::int64_t lost = 0;
  for (const auto& [what, count] : times) lost += count - 1;
  return lost;
}

nanoseconds quantile(const std::vector<std::int64_t>& sorted, double q) {
  if (sorted.empty()) return {};
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return nanoseconds{sorted[std::min(std::max<std::size_t>(rank, 1), sorted.size()) - 1]};
}

void count_times(const ledger& of, verdict& out) {
  std::vector<std::int64_t> waits;
  instant last = of.opened;
  for_each_order(of, [&](const order& one, int) {
    if (one.state != order_state::done) return;
    waits.push_back(one.wrote - one.wanted);
    last = std::max(last, one.wrote);
  });
  std::ranges::sort(waits);
  out.wait_p50 = quantile(waits, 0.5);
  out.wait_p99 = quantile(waits, 0.99);
  if (last > of.opened)
    out.orders_per_second =
        static_cast<double>(out.sold) * 1e9 / static_cast<double>(last - of.opened);
}

void count_shares(const ledger& of, verdict& out) {
  for (std::size_t buyer = 0; buyer < of.orders.size(); ++buyer) {
    const auto mine = std::ranges::count(of.orders[buyer], order_state::done, &order::state);
    out.fewest = buyer == 0 ? mine : std::min(out.fewest, mine);
    out.most = std::max(out.most, mine);
  }
}

void count_standstill(const ledger& of, verdict& out) {
  if (of.struck == fault::none || of.struck_at == 0) return;
  instant next = 0;
  for_each_order(of, [&](const order& one, int process) {
    if (one.state != order_state::done || process == of.struck_process) return;
    if (one.wrote > of.struck_at && (next == 0 || one.wrote < next)) next = one.wrote;
  });
  out.stood_for_good = next == 0;
  out.stood_still = nanoseconds{(next == 0 ? of.closed : next) - of.struck_at};
}

// Its write was computed from a number that another had used up meanwhile: that one wrote the same.
bool another_wrote_it_before(const ledger& of, const order& late) {
  bool found = false;
  for_each_order(of, [&](const order& one, int process) {
    found = found || (process != of.struck_process && one.state == order_state::done &&
                      one.shelf == late.shelf && one.left == late.left && one.wrote > late.saw &&
                      one.wrote < late.wrote);
  });
  return found;
}

void count_stale_writes(const ledger& of, verdict& out) {
  if (of.struck != fault::pause || of.resumed_at == 0) return;
  for_each_order(of, [&](const order& one, int process) {
    if (process != of.struck_process || one.state == order_state::sent) return;
    if (one.saw > of.struck_at || one.wrote < of.resumed_at) return;
    if (!another_wrote_it_before(of, one)) return;
    ++(one.state == order_state::done ? out.stale_accepted : out.stale_refused);
  });
}

}  // namespace

verdict judge(const ledger& of) {
  verdict out;
  for_each_order(of, [&](const order& one, int) {
    if (one.state == order_state::done) ++out.sold;
    if (one.state == order_state::sent) ++out.unknown;
  });
  out.oversold = std::max<std::int64_t>(0, out.sold - of.stock);
  out.lost_updates = written_twice(of);
  if (of.left) out.unexplained = of.stock - *of.left - out.sold;
  count_times(of, out);
  count_shares(of, out);
  count_standstill(of, out);
  count_stale_writes(of, out);
  return out;
}

}  // namespace holdfast::cli::flash
