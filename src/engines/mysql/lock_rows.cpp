// Opening the rows of a name, and writing them down.
#include "engines/mysql/lock_rows.hpp"

#include "engines/mysql/lock_rows_parts.hpp"

#include <algorithm>
#include <tuple>

namespace holdfast::engines::mysql {

namespace {

constexpr std::size_t head_length = 4;  // see statements::entries
constexpr std::size_t more_length = 16;

}  // namespace

// ---- reading

result<std::optional<lock_rows>> lock_rows::open(connection& on, std::string_view name, bool create,
                                                 std::uint64_t capacity, std::string_view client,
                                                 std::uint64_t seq) {
  auto found = on.ask(sql().lock_row, {name});
  if (!found) return std::move(found).error();
  if (found->empty()) {
    if (!create) return std::optional<lock_rows>{};
    if (auto made = on.run(sql().insert_row, {name, capacity, client}); !made)
      return std::move(made).error();
    found = on.ask(sql().lock_row, {name});
    if (!found) return std::move(found).error();
    if (found->empty()) return error{errc::unavailable, "The row of a lock vanished."};
  }
  lock_rows out{on, name};
  out.me_ = client;
  out.my_seq_ = seq;
  out.read_row(found->front());
  if (out.more_ > 0)
    if (auto ok = out.read_entries(client, seq); !ok) return std::move(ok).error();
  return std::optional<lock_rows>{std::move(out)};
}

void lock_rows::read_row(const row& from) {
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
  // The row is locked, so its holder cannot renew it meanwhile: over is over.
  if (own.expires > now_) {
    holders_.push_back(std::move(own));
  } else if (own.expires != 0) {
    holders_changed_ = row_changed_ = true;
  }
}

lock_rows::entry lock_rows::read_entry(const row& from) {
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

result<void> lock_rows::read_entries(std::string_view client, std::uint64_t seq) {
  auto found = on_.ask(sql().entries, {name_, name_, name_, client, seq});
  if (!found) return std::move(found).error();
  for (const auto& from : *found) {
    now_ = std::max(now_, from.number(entry_column::now));
    auto here = read_entry(from);
    if (here.state == entry_state::observer) {
      observers_.push_back(std::move(here));
    } else if (here.state == entry_state::holder && here.expires == 0) {
      leftovers_.push_back(std::move(here));
    } else if (here.state != entry_state::waiter) {
      holders_.push_back(std::move(here));
    } else if (waiters_.size() < head_length && waiter(here.client, here.seq) == nullptr) {
      waiters_.push_back(std::move(here));
    } else if (waiter(here.client, here.seq) == nullptr) {
      mine_ = std::move(here);
    }
  }
  all_waiters_read_ = waiters_.size() < head_length;
  // In the order in which renewals lock them. The holder in the lock's own row is first.
  std::ranges::sort(holders_, {}, [](const entry& held) {
    return std::tuple{!held.is_inline, held.client, held.seq};
  });
  return {};
}

result<bool> lock_rows::read_more_waiters() {
  if (all_waiters_read_) return false;
  const auto turn = waiters_.empty() ? turn_of_upgrade : waiters_.back().turn;
  const auto place = waiters_.empty() ? std::uint64_t{0} : waiters_.back().place;
  auto found = on_.ask(sql().more_waiters, {name_, turn, turn, place});
  if (!found) return std::move(found).error();
  for (const auto& from : *found) {
    auto here = read_entry(from);
    if (mine_ && is_same(*mine_, here.client, here.seq)) mine_.reset();
    waiters_.push_back(std::move(here));
  }
  all_waiters_read_ = found->size() < more_length;
  return !found->empty();
}

const lock_rows::entry* lock_rows::holder(std::string_view client, std::uint64_t seq) const {
  for (const auto& held : holders_)
    if (is_same(held, client, seq)) return &held;
  return nullptr;
}

const lock_rows::entry* lock_rows::waiter(std::string_view client, std::uint64_t seq) const {
  for (const auto& queued : waiters_)
    if (is_same(queued, client, seq)) return &queued;
  if (mine_ && is_same(*mine_, client, seq)) return &*mine_;
  return nullptr;
}

result<std::string> lock_rows::predecessor(const entry& waiting) {
  const auto if_present = [](const entry& ahead) {
    return ahead.is_present ? ahead.client : std::string{};
  };
  const auto at = std::ranges::find_if(
      waiters_, [&](const entry& queued) { return is_same(queued, waiting.client, waiting.seq); });
  if (at != waiters_.end() && at != waiters_.begin()) return if_present(*std::prev(at));
  if (at != waiters_.end()) return holders_.empty() ? std::string{} : if_present(holders_.front());
  auto found = on_.ask(sql().before_me, {name_, waiting.turn, waiting.turn, waiting.place});
  if (!found) return std::move(found).error();
  const bool is_there = !found->empty() && found->front().number(1) != 0;
  return is_there ? found->front().bytes(0) : std::string{};
}

microseconds_count lock_rows::first_expiry() const {
  microseconds_count first = 0;
  for (const auto& held : holders_)
    first = first == 0 ? held.expires : std::min(first, held.expires);
  return first;
}

// ---- writing down

result<void> lock_rows::close() {
  if (holders_changed_ || queue_changed_) {
    if (auto ok = drop_dead_waiters(); !ok) return ok;
    if (auto ok = serve(); !ok) return ok;
  }
  if (holders_changed_) {
    if (!has_fresh_token_)
      static_cast<void>(next_token());  // the version is the fence: it must change, too
    for (const auto& observer : observers_) {
      if (auto ok = erase(observer); !ok) return ok;
      wake_after_commit(observer);
    }
    observers_.clear();
  }
  if (auto ok = drop_leftovers(); !ok) return ok;
  if (!row_changed_) return {};
  if (all_waiters_read_ && !mine_ && count_is_known_) {
    const auto in_rows = std::ranges::count(holders_, false, &entry::is_inline);
    more_ = static_cast<std::uint64_t>(in_rows) + waiters_.size() + observers_.size() +
            leftovers_.size();
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

void lock_rows::wake_after_commit(const entry& which) {
  if (which.listener != 0) to_wake_.insert(which.listener);
}

void lock_rows::wake() {
  for (const auto listener : to_wake_) on_.interrupt(listener);
  to_wake_.clear();
}

std::vector<lock_rows::entry> lock_rows::arrivals_of(std::string_view client) const {
  std::vector<entry> out;
  std::ranges::copy_if(arrivals_, std::back_inserter(out),
                       [client](const entry& arrived) { return arrived.client == client; });
  return out;
}

}  // namespace holdfast::engines::mysql
