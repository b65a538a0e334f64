// From hand to hand, without opening the rows of the name (lock_rows.hpp): an exclusive lock that goes from one client
// to the next client that waits for it.
//
// A hand-over is one SELECT without locks and one UPDATE, and to queue up again is one UPDATE; each is its own
// transaction, so the name's row is never locked while a statement travels. Wherever something is out of the ordinary
// (others to be let in beside, an observer to be told, a client that may be dead), nothing is done here, and lock_rows
// does it.
#include "engines/mysql/errors.hpp"
#include "engines/mysql/lock_rows_parts.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include <algorithm>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_names = 1024, most_of_a_name = 16;
constexpr std::size_t length_of_tail = 3;  // see statements::clients_ahead

// In the order of statements::waits_next.
struct next_waiter {
  explicit next_waiter(const row& from)
      : capacity(from.number(0)),
        fence(from.number(1)),
        places(from.number(2)),
        now(from.number(3)),
        client(from.bytes(4)),
        seq(from.number(5)),
        listener(from.number(11)),
        is_ordinary(from.number(6) == capacity && from.number(7) == 1 && from.bytes(8).empty() &&
                    from.number(9) > now && from.number(10) != 0 && listener != 0) {}
  std::uint64_t capacity, fence, places;
  microseconds_count now;
  std::string client;
  std::uint64_t seq, listener;
  bool is_ordinary;  // alone in the lock once it has it, and there to hear of it
};

// In the order of statements::clients_ahead.
struct neighbour {
  explicit neighbour(const row& from)
      : is_waiter(from.number(0) != 0),
        client(from.bytes(1)),
        seq(from.number(2)),
        expires(from.number(3)),
        grace(from.number(4)),
        now(from.number(5)),
        is_present(from.number(6) != 0) {}
  bool is_waiter;
  std::string client;
  std::uint64_t seq;
  microseconds_count expires, grace, now;
  bool is_present;
};

}  // namespace

void leftover_rows::add(std::string_view name, std::uint64_t seq) {
  const std::lock_guard lock{guard_};
  if (all_.size() >= most_names) all_.clear();
  auto& here = all_[std::string{name}];
  if (here.size() >= most_of_a_name) here.erase(here.begin());
  here.push_back(seq);
}

std::optional<std::uint64_t> leftover_rows::take(std::string_view name) {
  const std::lock_guard lock{guard_};
  const auto at = all_.find(name);
  if (at == all_.end()) return std::nullopt;
  const auto last = at->second.back();
  at->second.pop_back();
  if (at->second.empty()) all_.erase(at);
  return last;
}

result<bool> mysql_engine::hand_over(const grant& held, const call& limits) {
  const auto mine = listener_ ? listener_->told(held.owner.sequence) : std::nullopt;
  if (!mine || held.mode != lock_mode::exclusive || !expects_next_) return false;
  const std::string_view me = session_.client();
  const auto seq = held.owner.sequence;
  auto on = plain_.take(limits, held.name);
  if (!on) return std::move(on).error();
  auto found = (*on)->ask(sql().waits_next,
                          {held.name, held.name, mine->turn, mine->place, held.name, mine->turn});
  if (!found) return std::move(found).error();
  if (found->empty()) {
    expects_next_ = false;
    return false;
  }
  const next_waiter next{found->front()};
  if (!next.is_ordinary || next.client == me) return false;
  const auto token = std::max(next.fence + 1, next.now);
  auto handed =
      (*on)->run(sql().hand_over, {token, token, held.name, next.fence, next.places % place_step,
                                   held.name, me, seq, held.name, next.client, next.seq});
  if (!handed) return std::move(handed).error();
  if (handed->affected == 0) return false;
  (*on)->interrupt(next.listener);
  listener_->released(seq);
  leftover_rows_.add(held.name, seq);
  return true;
}

// Nothing, when the rows of the name must be opened.
result<std::optional<entered>> mysql_engine::queue_again(const request& ask, const call& limits,
                                                         bool& is_queued) {
  // A request that can share the lock may be able to enter although it is held.
  if (!listener_ || ask.replaces != nullptr || ask.weight != ask.capacity)
    return std::optional<entered>{};
  const auto left = leftover_rows_.take(ask.name);
  if (!left || !listener_->ensure(limits)) return std::optional<entered>{};
  auto on = plain_.take(limits, ask.name);
  if (!on) return std::move(on).error();
  auto queued =
      (*on)->run(sql().queue_again,
                 {ask.owner.sequence, static_cast<std::uint64_t>(ask.mode), ask.weight,
                  in_us(ask.ttl), in_us(session_.grace()), -std::int64_t{ask.priority},
                  std::int64_t{ask.priority}, ask.label, ask.name, ask.capacity, ask.owner.sequence,
                  ask.name, std::string_view{session_.client()}, *left});
  if (!queued && is_duplicate((*on)->last_error())) {  // it asks again, and is in the queue
    leftover_rows_.add(ask.name, *left);
    return std::optional<entered>{};
  }
  if (!queued) return std::move(queued).error();
  if (queued->affected == 0) return std::optional<entered>{};
  is_queued = true;
  return look_ahead(**on, ask);
}

// We are in the queue. The holder will see us there when it releases; when there is none, or one that seems to be dead,
// the rows of the name are to be opened.
std::optional<entered> mysql_engine::look_ahead(connection& on, const request& ask) {
  const auto found = on.ask(sql().clients_ahead, {ask.name, ask.name});
  if (!found) return std::nullopt;
  const std::string_view me = session_.client();
  const auto seq = ask.owner.sequence;
  std::vector<neighbour> holders, tail;
  for (const auto& found_row : *found)
    (found_row.number(0) != 0 ? tail : holders).emplace_back(found_row);
  const auto is_mine = [&](const neighbour& other) {
    return other.client == me && other.seq == seq;
  };
  const auto is_suspect = [&](const neighbour& other) {
    return other.grace > 0 && !other.is_present && other.client != me;
  };
  if (holders.empty() || std::ranges::any_of(holders, is_suspect)) return std::nullopt;
  entered out;
  out.what = entered::kind::waiting;
  out.waiting = ticket{ask.name, ask.owner, 0, clock_.now() + longest_recheck};
  if (std::ranges::any_of(holders, is_mine)) return out;  // the news is on its way
  const auto mine = std::ranges::find_if(tail, is_mine);
  if (mine == tail.end()) return std::nullopt;
  const bool is_first = std::next(mine) == tail.end();
  if (is_first && tail.size() == length_of_tail) return std::nullopt;
  const auto first = std::ranges::min(holders, {}, &neighbour::expires);
  const auto over = std::chrono::microseconds{first.expires - first.now} + (is_first ? 1ms : 50ms);
  out.waiting.recheck_at = clock_.now() + std::min<nanoseconds>(longest_recheck, over);
  if (session_.grace() == 0ns) return out;
  const auto& ahead = is_first ? holders.front() : *std::next(mine);
  const auto listener = listener_->watch(seq, ahead.is_present ? ahead.client : std::string{});
  if (listener != 0) on.interrupt(listener);
  return out;
}

}  // namespace holdfast::engines::mysql
