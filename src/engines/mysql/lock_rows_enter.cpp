// Asking, queueing up, being let in.
#include "engines/common/grant_rule.hpp"
#include "engines/mysql/lock_rows_parts.hpp"

#include <algorithm>

namespace holdfast::engines::mysql {

namespace {

// How long a grant lasts that was given to a waiter that polls, until it has asked for it.
constexpr microseconds_count until_asked = 2'000'000;

bool comes_before(const lock_rows::entry& a, const lock_rows::entry& b) {
  return a.turn != b.turn ? a.turn < b.turn : a.place < b.place;
}

}  // namespace

std::uint64_t lock_rows::next_token() {
  has_fresh_token_ = row_changed_ = true;
  return fence_ = std::max(fence_ + 1, now_);
}

std::uint64_t lock_rows::used() const {
  std::uint64_t sum = 0;
  for (const auto& held : holders_) sum += held.weight;
  return sum;
}

std::uint64_t lock_rows::freed_by(const entry& waiting) const {
  const auto base = read_replaced(waiting.was);
  if (!base) return 0;
  const auto* old = holder(waiting.client, *base);
  return old == nullptr ? 0 : old->weight;
}

bool lock_rows::may_enter(const request& ask) const {
  queue_state state{capacity_, used()};
  if (!waiters_.empty()) {
    state.upgrade_waiting = !waiters_.front().was.empty();
    state.waiters_ahead = waiters_.front().priority >= ask.priority;
  }
  const auto* old = ask.replaces == nullptr ? nullptr : holder(me_, ask.replaces->owner.sequence);
  return engines::may_enter(state, ask.weight, ask.order, old == nullptr ? 0 : old->weight);
}

// A new holder: in the row itself where there is room.
result<void> lock_rows::put(const entry& what) {
  auto fresh = what;
  fresh.is_inline = std::ranges::none_of(holders_, &entry::is_inline);
  if (!fresh.is_inline) {
    auto made = on_.run(
        sql().insert_entry,
        {std::uint64_t{0}, std::string_view{name_}, fresh.client, fresh.seq,
         static_cast<std::uint64_t>(fresh.state), static_cast<std::uint64_t>(fresh.mode),
         fresh.weight, fresh.token, fresh.ttl, fresh.grace, fresh.since, fresh.expires, fresh.turn,
         fresh.priority, fresh.place, std::uint64_t{fresh.push}, fresh.was, fresh.label});
    if (!made) return std::move(made).error();
    ++more_;
  }
  holders_.push_back(std::move(fresh));
  holders_changed_ = row_changed_ = true;
  return {};
}

result<void> lock_rows::admit(const request& ask, const requester& from) {
  entry fresh;
  fresh.client = from.client;
  fresh.seq = ask.owner.sequence;
  fresh.mode = ask.mode;
  fresh.weight = ask.weight;
  fresh.ttl = in_us(ask.ttl);
  fresh.grace = from.grace;
  fresh.since = now_;
  fresh.expires = now_ + fresh.ttl;
  fresh.priority = ask.priority;
  fresh.push = from.push;
  fresh.label = ask.label;
  if (ask.replaces != nullptr) {
    const auto old = std::ranges::find_if(holders_, [&](const entry& held) {
      return is_same(held, me_, ask.replaces->owner.sequence);
    });
    if (auto ok = drop_holder(static_cast<std::size_t>(old - holders_.begin())); !ok) return ok;
  }
  fresh.token = next_token();
  return put(fresh);
}

result<void> lock_rows::queue_up(const request& ask, const requester& from) {
  entry fresh;
  fresh.client = from.client;
  fresh.seq = ask.owner.sequence;
  fresh.state = entry_state::waiter;
  fresh.mode = ask.mode;
  fresh.weight = ask.weight;
  fresh.ttl = in_us(ask.ttl);
  fresh.grace = from.grace;
  fresh.since = now_;
  fresh.expires = now_ + (from.push ? patience_of_push : patience_of_poll);
  fresh.priority = ask.priority;
  fresh.turn = ask.replaces != nullptr ? turn_of_upgrade : -std::int64_t{ask.priority};
  fresh.place = places_ += place_step;
  fresh.push = from.push;
  fresh.label = ask.label;
  if (ask.replaces != nullptr) fresh.was = std::to_string(ask.replaces->owner.sequence);
  auto made =
      on_.run(sql().insert_entry,
              {std::uint64_t{0}, std::string_view{name_}, fresh.client, fresh.seq, std::uint64_t{1},
               static_cast<std::uint64_t>(fresh.mode), fresh.weight, std::uint64_t{0}, fresh.ttl,
               fresh.grace, fresh.since, fresh.expires, fresh.turn, fresh.priority, fresh.place,
               std::uint64_t{fresh.push}, fresh.was, fresh.label});
  if (!made) return std::move(made).error();
  ++more_;
  row_changed_ = true;
  insert_waiter(std::move(fresh));
  return {};
}

void lock_rows::insert_waiter(entry&& fresh) {
  const auto at = std::ranges::find_if(
      waiters_, [&](const entry& other) { return comes_before(fresh, other); });
  if (at == waiters_.end() && !all_waiters_read_) {
    mine_ = std::move(fresh);
  } else {
    waiters_.insert(at, std::move(fresh));
  }
}

result<void> lock_rows::confirm(std::string_view client, std::uint64_t seq) {
  const auto mine =
      std::ranges::find_if(holders_, [&](const entry& held) { return is_same(held, client, seq); });
  if (mine == holders_.end() || mine->push || mine->state != entry_state::arrived) return {};
  mine->since = now_;  // its grace, too, counts from now
  mine->expires = now_ + mine->ttl;
  mine->state = entry_state::holder;
  auto ok = on_.run(sql().confirm_entry,
                    {mine->since, mine->expires, std::string_view{name_}, client, seq});
  if (!ok) return std::move(ok).error();
  return {};
}

result<void> lock_rows::touch_waiter(std::string_view client, std::uint64_t seq) {
  const auto* mine = waiter(client, seq);
  if (mine == nullptr) return {};
  const auto until = now_ + (mine->push ? patience_of_push : patience_of_poll);
  auto ok = on_.run(sql().touch_entry, {until, std::string_view{name_}, client, seq});
  if (!ok) return std::move(ok).error();
  return {};
}

result<void> lock_rows::serve() {
  for (;;) {
    if (waiters_.empty()) {
      auto more = read_more_waiters();
      if (!more) return std::move(more).error();
      if (!*more) return {};
      if (auto ok = drop_dead_waiters(); !ok) return ok;
      continue;
    }
    const auto& head = waiters_.front();
    const auto free = capacity_ - std::min(capacity_, used() - freed_by(head));
    if (head.weight > free) return {};
    auto next = std::move(waiters_.front());
    waiters_.erase(waiters_.begin());
    if (auto ok = let_in(std::move(next)); !ok) return ok;
  }
}

result<void> lock_rows::let_in(entry next) {
  const bool is_me = is_same(next, me_, my_seq_);
  if (const auto base = read_replaced(next.was)) {
    const auto old = std::ranges::find_if(
        holders_, [&](const entry& held) { return is_same(held, next.client, *base); });
    if (old == holders_.end()) return erase(next);
    next.was.clear();
    if (auto ok = drop_holder(static_cast<std::size_t>(old - holders_.begin())); !ok) return ok;
  }
  next.token = next_token();
  next.since = now_;
  // A waiter that polls may be dead, and no other client would know: until it has asked, it has less. Our own client is
  // not dead, and is told by the thread that has these rows open.
  const bool hears = next.push || next.client == me_;
  next.expires = now_ + (hears ? next.ttl : std::min(next.ttl, until_asked));
  queue_changed_ = true;
  if (is_me) {
    // It has its answer at once, so it can have the better place as well.
    if (auto ok = erase(next); !ok) return ok;
    next.state = entry_state::holder;
    return put(next);
  }
  next.state = entry_state::arrived;
  auto ok = on_.run(sql().grant_entry,
                    {static_cast<std::uint64_t>(next.state), next.token, next.since, next.expires,
                     next.was, std::string_view{name_}, next.client, next.seq});
  if (!ok) return std::move(ok).error();
  if (next.client != me_) wake_after_commit(next);
  arrivals_.push_back(next);
  holders_.push_back(std::move(next));
  holders_changed_ = true;
  return {};
}

}  // namespace holdfast::engines::mysql
