#include "engines/mysql/book.hpp"

#include "engines/grant_rule.hpp"
#include "engines/mysql/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace holdfast::engines::mysql {

namespace {

constexpr std::int64_t turn_of_upgrade = std::numeric_limits<std::int64_t>::min();
constexpr std::size_t head_length = 4;  // see statements::entries
constexpr std::size_t more_length = 16;

// How long a waiter counts as alive after it last asked.
constexpr microseconds_count patience_of_push = 30'000'000, patience_of_poll = 3'000'000;

// How long a grant lasts that was given to somebody who polls, until it has asked for it.
constexpr microseconds_count until_asked = 2'000'000;

microseconds_count in_us(nanoseconds length) {
  return static_cast<microseconds_count>(
      std::chrono::ceil<std::chrono::microseconds>(length).count());
}

// "SEQ" of an upgrade that waits, "SEQ TOKEN TTL" of one that has arrived.
struct replaced {
  std::uint64_t seq = 0, token = 0, ttl = 0;
};

std::optional<replaced> read_replaced(std::string_view text) {
  if (text.empty()) return std::nullopt;
  replaced out;
  const auto* at = text.data();
  const auto* const end = at + text.size();
  for (auto* into : {&out.seq, &out.token, &out.ttl}) {
    at = std::from_chars(at, end, *into).ptr;
    if (at != end) ++at;
  }
  return out;
}

bool is_same(const book::entry& one, std::string_view client, std::uint64_t seq) {
  return one.seq == seq && one.client == client;
}

bool comes_before(const book::entry& a, const book::entry& b) {
  return a.turn != b.turn ? a.turn < b.turn : a.place < b.place;
}

}  // namespace

// ---- reading

result<std::optional<book>> book::open(connection& on, std::string_view name, bool create,
                                       std::uint64_t capacity, std::string_view client,
                                       std::uint64_t seq) {
  auto found = on.ask(sql().lock_row, {name});
  if (!found) return std::move(found).error();
  if (found->empty()) {
    if (!create) return std::optional<book>{};
    if (auto made = on.run(sql().insert_row, {name, capacity, client}); !made)
      return std::move(made).error();
    found = on.ask(sql().lock_row, {name});
    if (!found) return std::move(found).error();
    if (found->empty()) return error{errc::unavailable, "The row of a lock vanished."};
  }
  book out{on, name};
  out.me_ = client;
  out.my_seq_ = seq;
  out.read_row(found->front());
  if (out.more_ > 0)
    if (auto ok = out.read_entries(client, seq); !ok) return std::move(ok).error();
  return std::optional<book>{std::move(out)};
}

void book::read_row(const row& from) {
  namespace c = lock_column;
  capacity_ = from.number(c::capacity);
  fence_ = from.number(c::fence);
  places_ = from.number(c::places);
  more_ = from.number(c::more);
  now_ = from.number(c::now);
  since_ = from.number(c::since);
  entry own;
  own.client = from.bytes(c::client);
  own.seq = from.number(c::seq);
  own.mode = static_cast<lock_mode>(from.number(c::mode));
  own.weight = from.number(c::weight);
  own.token = from.number(c::token);
  own.ttl = from.number(c::ttl);
  own.grace = from.number(c::grace);
  own.since = from.number(c::since);
  own.expires = from.number(c::expires);
  own.was = from.bytes(c::was);
  own.label = from.bytes(c::label);
  own.is_present = from.number(c::is_present) != 0;
  own.listener = from.number(c::listener);
  own.is_inline = true;
  blank_ = own;
  blank_.expires = 0;
  // The row is locked, so nobody can renew it under our eyes: over is over.
  if (own.expires > now_) {
    holders_.push_back(std::move(own));
  } else if (own.expires != 0) {
    holders_changed_ = row_changed_ = true;
  }
}

book::entry book::read_entry(const row& from) {
  namespace c = entry_column;
  entry out;
  out.client = from.bytes(c::client);
  out.seq = from.number(c::seq);
  out.state = static_cast<entry_state>(from.number(c::state));
  out.mode = static_cast<lock_mode>(from.number(c::mode));
  out.weight = from.number(c::weight);
  out.token = from.number(c::token);
  out.ttl = from.number(c::ttl);
  out.grace = from.number(c::grace);
  out.since = from.number(c::since);
  out.expires = from.number(c::expires);
  out.turn = from.integer(c::turn);
  out.priority = from.integer(c::priority);
  out.place = from.number(c::place);
  out.push = from.number(c::push) != 0;
  out.was = from.bytes(c::was);
  out.label = from.bytes(c::label);
  out.is_present = from.number(c::is_present) != 0;
  out.listener = from.number(c::listener);
  return out;
}

result<void> book::read_entries(std::string_view client, std::uint64_t seq) {
  auto found = on_.ask(sql().entries, {name_, name_, name_, client, seq});
  if (!found) return std::move(found).error();
  for (const auto& one : *found) {
    now_ = std::max(now_, one.number(entry_column::now));
    auto here = read_entry(one);
    if (here.state == entry_state::observer) {
      observers_.push_back(std::move(here));
    } else if (here.state != entry_state::waiter) {
      holders_.push_back(std::move(here));
    } else if (waiters_.size() < head_length && waiter(here.client, here.seq) == nullptr) {
      waiters_.push_back(std::move(here));
    } else if (waiter(here.client, here.seq) == nullptr) {
      mine_ = std::move(here);
    }
  }
  all_waiters_read_ = waiters_.size() < head_length;
  return {};
}

result<bool> book::read_more_waiters() {
  if (all_waiters_read_) return false;
  const auto turn = waiters_.empty() ? turn_of_upgrade : waiters_.back().turn;
  const auto place = waiters_.empty() ? std::uint64_t{0} : waiters_.back().place;
  auto found = on_.ask(sql().more_waiters, {name_, turn, turn, place});
  if (!found) return std::move(found).error();
  for (const auto& one : *found) {
    auto here = read_entry(one);
    if (mine_ && is_same(*mine_, here.client, here.seq)) mine_.reset();
    waiters_.push_back(std::move(here));
  }
  all_waiters_read_ = found->size() < more_length;
  return !found->empty();
}

const book::entry* book::holder(std::string_view client, std::uint64_t seq) const {
  for (const auto& one : holders_)
    if (is_same(one, client, seq)) return &one;
  return nullptr;
}

const book::entry* book::waiter(std::string_view client, std::uint64_t seq) const {
  for (const auto& one : waiters_)
    if (is_same(one, client, seq)) return &one;
  if (mine_ && is_same(*mine_, client, seq)) return &*mine_;
  return nullptr;
}

result<std::string> book::predecessor(const entry& waiting) {
  const auto if_present = [](const entry& one) {
    return one.is_present ? one.client : std::string{};
  };
  const auto at = std::ranges::find_if(
      waiters_, [&](const entry& one) { return is_same(one, waiting.client, waiting.seq); });
  if (at != waiters_.end() && at != waiters_.begin()) return if_present(*std::prev(at));
  if (at != waiters_.end()) return holders_.empty() ? std::string{} : if_present(holders_.front());
  auto found = on_.ask(sql().before_me, {name_, waiting.turn, waiting.turn, waiting.place});
  if (!found) return std::move(found).error();
  const bool is_there = !found->empty() && found->front().number(1) != 0;
  return is_there ? found->front().bytes(0) : std::string{};
}

microseconds_count book::first_expiry() const {
  microseconds_count first = 0;
  for (const auto& one : holders_) first = first == 0 ? one.expires : std::min(first, one.expires);
  return first;
}

// ---- the end of holders and waiters

result<void> book::bring_up_to_date() {
  if (auto ok = expire(); !ok) return ok;
  if (auto ok = drop_dead_waiters(); !ok) return ok;
  return serve();
}

result<void> book::expire() {
  for (std::size_t i = 0; i < holders_.size();) {
    auto& one = holders_[i];
    if (one.expires > now_) {
      ++i;
      continue;
    }
    if (one.is_inline) {
      if (auto ok = drop_holder(i); !ok) return ok;
      continue;
    }
    auto gone = on_.run(sql().delete_expired, {name_, one.client, one.seq, now_});
    if (!gone) return std::move(gone).error();
    if (gone->affected == 0) {  // it has renewed itself just now
      one.expires = now_ + one.ttl;
      ++i;
      continue;
    }
    if (more_ > 0) --more_;
    holders_.erase(holders_.begin() + static_cast<std::ptrdiff_t>(i));
    holders_changed_ = row_changed_ = true;
  }
  return {};
}

result<void> book::tidy() {
  for (;;) {
    auto more = read_more_waiters();
    if (!more) return std::move(more).error();
    if (!*more) break;
  }
  for (std::size_t i = 0; i < observers_.size();) {
    if (observers_[i].expires > now_ && observers_[i].listener != 0) {
      ++i;
      continue;
    }
    if (auto ok = erase(observers_[i]); !ok) return ok;
    observers_.erase(observers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return bring_up_to_date();
}

bool book::is_dead(const entry& waiting) const {
  if (is_same(waiting, me_, my_seq_)) return false;
  // The server notices at once that an idle connection has ended, such as that of a session; a listener that sleeps, it
  // notices after a second.
  return waiting.expires <= now_ ||
         (waiting.push && (waiting.listener == 0 || !waiting.is_present));
}

result<void> book::drop_dead_waiters() {
  for (;;) {
    const auto dead =
        std::ranges::find_if(waiters_, [this](const entry& one) { return is_dead(one); });
    if (dead == waiters_.end()) break;
    if (auto ok = erase(*dead); !ok) return ok;
    waiters_.erase(dead);
    queue_changed_ = true;
    if (!waiters_.empty()) continue;
    if (auto more = read_more_waiters(); !more) return std::move(more).error();
  }
  // An upgrade whose grant is gone has nothing to upgrade; whoever awaits it asks again and learns that.
  for (std::size_t i = 0; i < waiters_.size();) {
    const auto base = read_replaced(waiters_[i].was);
    if (!base || holder(waiters_[i].client, base->seq) != nullptr) {
      ++i;
      continue;
    }
    if (auto ok = erase(waiters_[i]); !ok) return ok;
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    queue_changed_ = true;
  }
  return {};
}

result<book::absence> book::look_for_the_dead() {
  absence out;
  std::vector<std::string>
      suspects;  // in order: two who look at the same two clients must not wait for each other
  for (const auto& one : holders_)
    if (one.grace > 0 && !one.is_present && one.client != me_) suspects.push_back(one.client);
  std::ranges::sort(suspects);
  suspects.erase(std::unique(suspects.begin(), suspects.end()), suspects.end());
  for (const auto& client : suspects) {
    auto found = on_.ask(sql().look_at_session, {client});
    if (!found) return std::move(found).error();
    if (found->empty()) {
      if (auto ok = on_.run(sql().insert_gone, {client}); !ok) return std::move(ok).error();
      out.noticed = true;
      out.bury_at = now_ + holders_.front().grace;
      continue;
    }
    // Looked at under the lock on its session's row: a client that comes back takes its user lock first, and the note
    // away second. So a note never stands beside a user lock that is held.
    const bool is_free = found->front().number(1) != 0;
    auto gone = found->front().number(0);
    const auto at = found->front().number(2);
    if (!is_free) continue;
    if (gone == 0) {
      gone = at;
      if (auto ok = on_.run(sql().note_gone, {gone, client}); !ok) return std::move(ok).error();
    }
    for (std::size_t i = 0; i < holders_.size();) {
      const auto& one = holders_[i];
      const auto end = std::max(gone, one.since) + one.grace;
      if (one.client != client || one.grace == 0 || at < end) {
        if (one.client == client && one.grace > 0) {
          out.noticed = true;
          out.bury_at = out.bury_at == 0 ? end : std::min(out.bury_at, end);
        }
        ++i;
        continue;
      }
      if (auto ok = drop_holder(i); !ok) return std::move(ok).error();
    }
  }
  if (holders_changed_)
    if (auto ok = bring_up_to_date(); !ok) return std::move(ok).error();
  return out;
}

result<void> book::drop_holder(std::size_t at) {
  if (!holders_[at].is_inline)
    if (auto ok = erase(holders_[at]); !ok) return ok;
  holders_.erase(holders_.begin() + static_cast<std::ptrdiff_t>(at));
  holders_changed_ = row_changed_ = true;
  return {};
}

result<void> book::erase(const entry& what) {
  auto gone = on_.run(sql().delete_entry,
                      {std::uint64_t{0}, std::string_view{name_}, what.client, what.seq});
  if (!gone) return std::move(gone).error();
  if (gone->affected > 0 && more_ > 0) --more_;
  row_changed_ = true;
  return {};
}

// ---- entering

std::uint64_t book::next_token() {
  has_fresh_token_ = row_changed_ = true;
  return fence_ = std::max(fence_ + 1, now_);
}

std::uint64_t book::used() const {
  std::uint64_t sum = 0;
  for (const auto& one : holders_) sum += one.weight;
  return sum;
}

std::uint64_t book::freed_by(const entry& waiting) const {
  const auto base = read_replaced(waiting.was);
  if (!base) return 0;
  const auto* old = holder(waiting.client, base->seq);
  return old == nullptr ? 0 : old->weight;
}

bool book::may_enter(const request& ask) const {
  queue_state state{capacity_, used()};
  if (!waiters_.empty()) {
    state.upgrade_waiting = !waiters_.front().was.empty();
    state.waiters_ahead = waiters_.front().priority >= ask.priority;
  }
  const auto* old = ask.replaces == nullptr ? nullptr : holder(me_, ask.replaces->owner.sequence);
  return engines::may_enter(state, ask.weight, ask.order, old == nullptr ? 0 : old->weight);
}

// A new holder: in the row itself where there is room.
result<void> book::put(const entry& what) {
  auto one = what;
  one.is_inline = std::ranges::none_of(holders_, &entry::is_inline);
  if (!one.is_inline) {
    auto made =
        on_.run(sql().insert_entry,
                {std::uint64_t{0}, std::string_view{name_}, one.client, one.seq,
                 static_cast<std::uint64_t>(one.state), static_cast<std::uint64_t>(one.mode),
                 one.weight, one.token, one.ttl, one.grace, one.since, one.expires, one.turn,
                 one.priority, one.place, std::uint64_t{one.push}, one.was, one.label});
    if (!made) return std::move(made).error();
    ++more_;
  }
  holders_.push_back(std::move(one));
  holders_changed_ = row_changed_ = true;
  return {};
}

result<void> book::admit(const request& ask, const asker& who) {
  entry fresh;
  fresh.client = who.client;
  fresh.seq = ask.owner.sequence;
  fresh.mode = ask.mode;
  fresh.weight = ask.weight;
  fresh.ttl = in_us(ask.ttl);
  fresh.grace = who.grace;
  fresh.since = now_;
  fresh.expires = now_ + fresh.ttl;
  fresh.priority = ask.priority;
  fresh.push = who.push;
  fresh.label = ask.label;
  if (ask.replaces != nullptr) {
    const auto old = std::ranges::find_if(holders_, [&](const entry& one) {
      return is_same(one, me_, ask.replaces->owner.sequence);
    });
    fresh.was = fmt::format("{} {} {}", old->seq, old->token, old->ttl);
    if (auto ok = drop_holder(static_cast<std::size_t>(old - holders_.begin())); !ok) return ok;
  }
  fresh.token = next_token();
  return put(fresh);
}

result<void> book::queue_up(const request& ask, const asker& who) {
  entry fresh;
  fresh.client = who.client;
  fresh.seq = ask.owner.sequence;
  fresh.state = entry_state::waiter;
  fresh.mode = ask.mode;
  fresh.weight = ask.weight;
  fresh.ttl = in_us(ask.ttl);
  fresh.grace = who.grace;
  fresh.since = now_;
  fresh.expires = now_ + (who.push ? patience_of_push : patience_of_poll);
  fresh.priority = ask.priority;
  fresh.turn = ask.replaces != nullptr ? turn_of_upgrade : -std::int64_t{ask.priority};
  fresh.place = ++places_;
  fresh.push = who.push;
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

void book::insert_waiter(entry&& one) {
  const auto at =
      std::ranges::find_if(waiters_, [&](const entry& other) { return comes_before(one, other); });
  if (at == waiters_.end() && !all_waiters_read_) {
    mine_ = std::move(one);
  } else {
    waiters_.insert(at, std::move(one));
  }
}

result<void> book::confirm(std::string_view client, std::uint64_t seq) {
  const auto one =
      std::ranges::find_if(holders_, [&](const entry& held) { return is_same(held, client, seq); });
  if (one == holders_.end() || one->push || one->state != entry_state::arrived) return {};
  one->expires = now_ + one->ttl;
  one->state = entry_state::holder;
  auto ok = on_.run(sql().confirm_entry, {one->expires, std::string_view{name_}, client, seq});
  if (!ok) return std::move(ok).error();
  return {};
}

result<void> book::touch_waiter(std::string_view client, std::uint64_t seq) {
  const auto* mine = waiter(client, seq);
  if (mine == nullptr) return {};
  const auto until = now_ + (mine->push ? patience_of_push : patience_of_poll);
  auto ok = on_.run(sql().touch_entry, {until, std::string_view{name_}, client, seq});
  if (!ok) return std::move(ok).error();
  return {};
}

result<void> book::serve() {
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

result<void> book::let_in(entry next) {
  const bool is_me = is_same(next, me_, my_seq_);
  if (const auto base = read_replaced(next.was)) {
    const auto old = std::ranges::find_if(
        holders_, [&](const entry& one) { return is_same(one, next.client, base->seq); });
    if (old == holders_.end()) return erase(next);
    next.was = fmt::format("{} {} {}", old->seq, old->token, old->ttl);
    if (auto ok = drop_holder(static_cast<std::size_t>(old - holders_.begin())); !ok) return ok;
  }
  next.token = next_token();
  next.since = now_;
  // Who must ask may be dead without anybody knowing: until it has asked, it has less.
  next.expires = now_ + (next.push || is_me ? next.ttl : std::min(next.ttl, until_asked));
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
  if (next.client != me_) tell(next);
  arrivals_.push_back(next);
  holders_.push_back(std::move(next));
  holders_changed_ = true;
  return {};
}

// ---- changing

result<void> book::observe(std::string_view client, std::uint64_t seq, microseconds_count length) {
  auto made = on_.run(sql().insert_observer,
                      {std::uint64_t{0}, std::string_view{name_}, client, seq, seq, length});
  if (!made) return std::move(made).error();
  if (made->affected == 1) ++more_;  // else it was there already
  row_changed_ = true;
  count_is_known_ = false;
  return {};
}

result<bool> book::remove(std::string_view client, std::uint64_t seq) {
  for (std::size_t i = 0; i < holders_.size(); ++i) {
    if (!is_same(holders_[i], client, seq)) continue;
    if (auto ok = drop_holder(i); !ok) return std::move(ok).error();
    return true;
  }
  const auto* mine = waiter(client, seq);
  if (mine == nullptr) return false;
  if (auto ok = erase(*mine); !ok) return std::move(ok).error();
  if (mine_ && &*mine_ == mine) {
    mine_.reset();
  } else {
    waiters_.erase(waiters_.begin() + (mine - waiters_.data()));
  }
  queue_changed_ = true;
  return true;
}

result<void> book::remove_all_of(std::string_view client) {
  do {
    for (std::size_t i = 0; i < holders_.size();) {
      if (holders_[i].client != client) {
        ++i;
      } else if (auto ok = drop_holder(i); !ok) {
        return ok;
      }
    }
    for (auto* among : {&waiters_, &observers_})
      for (std::size_t i = 0; i < among->size();) {
        if ((*among)[i].client != client) {
          ++i;
          continue;
        }
        if (auto ok = erase((*among)[i]); !ok) return ok;
        among->erase(among->begin() + static_cast<std::ptrdiff_t>(i));
        queue_changed_ = true;
      }
    auto more = read_more_waiters();
    if (!more) return std::move(more).error();
    if (!*more) return {};
  } while (true);
}

result<bool> book::revert(std::string_view client, std::uint64_t seq) {
  const auto* now_held = holder(client, seq);
  if (now_held == nullptr) return false;
  const auto before = read_replaced(now_held->was);
  if (!before) return false;
  auto old = *now_held;
  old.seq = before->seq;
  old.token = before->token;
  old.ttl = before->ttl;
  old.mode = lock_mode::upgradeable;
  old.weight = upgradeable_weight;
  old.expires = now_ + old.ttl;
  old.state = entry_state::holder;
  old.was.clear();
  if (auto ok = remove(client, seq); !ok) return std::move(ok).error();
  if (auto ok = put(old); !ok) return std::move(ok).error();
  return true;
}

result<const book::entry*> book::shrink(std::string_view client, std::uint64_t seq, lock_mode to,
                                        std::uint64_t weight) {
  const auto* now_held = holder(client, seq);
  if (now_held == nullptr) return static_cast<const entry*>(nullptr);
  auto smaller = *now_held;
  smaller.mode = to;
  smaller.weight = weight;
  smaller.was.clear();
  smaller.state = entry_state::holder;
  if (auto ok = remove(client, seq); !ok) return std::move(ok).error();
  if (auto ok = put(smaller); !ok) return std::move(ok).error();
  return &holders_.back();
}

result<std::size_t> book::revoke() {
  const auto count = holders_.size();
  while (!holders_.empty()) {
    const auto& one = holders_.back();
    // Until it is read, or nobody can be there to read it any more.
    const microseconds_count kept = now_ + one.ttl + 60'000'000;
    auto made =
        on_.run(sql().insert_entry,
                {std::uint64_t{2}, std::string_view{name_}, one.client, one.seq, std::uint64_t{4},
                 static_cast<std::uint64_t>(one.mode), one.weight, one.token, one.ttl, one.grace,
                 now_, kept, std::int64_t{0}, std::int64_t{0}, std::uint64_t{0}, std::uint64_t{0},
                 std::string_view{}, std::string_view{}});
    if (!made) return std::move(made).error();
    tell(one);
    if (auto ok = drop_holder(holders_.size() - 1); !ok) return std::move(ok).error();
  }
  return count;
}

// ---- writing down

result<void> book::close() {
  if (holders_changed_ || queue_changed_) {
    if (auto ok = drop_dead_waiters(); !ok) return ok;
    if (auto ok = serve(); !ok) return ok;
  }
  if (holders_changed_) {
    if (!has_fresh_token_)
      static_cast<void>(next_token());  // the version is the fence: it must change, too
    for (const auto& one : observers_) {
      if (auto ok = erase(one); !ok) return ok;
      tell(one);
    }
    observers_.clear();
  }
  if (!row_changed_) return {};
  if (all_waiters_read_ && !mine_ && count_is_known_) {
    const auto in_rows = std::ranges::count(holders_, false, &entry::is_inline);
    more_ = static_cast<std::uint64_t>(in_rows) + waiters_.size() + observers_.size();
  }
  const auto own = std::ranges::find(holders_, true, &entry::is_inline);
  const auto& in = own == holders_.end() ? blank_ : *own;
  const auto since = own == holders_.end() ? now_ : in.since;
  auto ok = on_.run(sql().update_row,
                    {capacity_, fence_, places_, more_, in.client, in.seq,
                     static_cast<std::uint64_t>(in.mode), in.weight, in.token, in.ttl, in.grace,
                     since, in.expires, in.was, in.label, std::string_view{name_}});
  if (!ok) return std::move(ok).error();
  return {};
}

void book::tell(const entry& whom) {
  if (whom.listener != 0) to_wake_.insert(whom.listener);
}

void book::wake() {
  for (const auto listener : to_wake_) on_.interrupt(listener);
  to_wake_.clear();
}

std::vector<book::entry> book::arrivals_of(std::string_view client) const {
  std::vector<entry> out;
  std::ranges::copy_if(arrivals_, std::back_inserter(out),
                       [client](const entry& one) { return one.client == client; });
  return out;
}

}  // namespace holdfast::engines::mysql
