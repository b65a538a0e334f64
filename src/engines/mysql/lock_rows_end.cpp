// The end of holders and waiters: by time, by absence, by the wish of their client or of an operator.
#include "engines/mysql/lock_rows_parts.hpp"

#include <algorithm>

namespace holdfast::engines::mysql {

namespace {

constexpr microseconds_count leftovers_kept = 1'000'000;

}  // namespace

result<void> lock_rows::bring_up_to_date() {
  if (auto ok = expire(); !ok) return ok;
  if (auto ok = drop_dead_waiters(); !ok) return ok;
  return serve();
}

result<void> lock_rows::expire() {
  for (std::size_t i = 0; i < holders_.size();) {
    auto& held = holders_[i];
    if (held.expires > now_) {
      ++i;
      continue;
    }
    if (held.is_inline) {
      if (auto ok = drop_holder(i); !ok) return ok;
      continue;
    }
    auto gone = on_.run(sql().delete_expired, {name_, held.client, held.seq, now_});
    if (!gone) return std::move(gone).error();
    if (gone->affected == 0) {  // it has renewed itself just now
      held.expires = now_ + held.ttl;
      ++i;
      continue;
    }
    if (more_ > 0) --more_;
    holders_.erase(holders_.begin() + static_cast<std::ptrdiff_t>(i));
    holders_changed_ = row_changed_ = true;
  }
  return {};
}

result<void> lock_rows::tidy() {
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
  row_changed_ = true;  // so that `more` is counted anew
  return bring_up_to_date();
}

bool lock_rows::is_dead(const entry& waiting) const {
  if (is_same(waiting, me_, my_seq_)) return false;
  // The server notices at once that an idle connection has ended, such as that of a session; a listener that sleeps, it
  // notices after a second.
  return waiting.expires <= now_ ||
         (waiting.push && (waiting.listener == 0 || !waiting.is_present));
}

result<void> lock_rows::drop_dead_waiters() {
  for (;;) {
    const auto dead =
        std::ranges::find_if(waiters_, [this](const entry& queued) { return is_dead(queued); });
    if (dead == waiters_.end()) break;
    if (auto ok = erase(*dead); !ok) return ok;
    waiters_.erase(dead);
    queue_changed_ = true;
    if (!waiters_.empty()) continue;
    if (auto more = read_more_waiters(); !more) return std::move(more).error();
  }
  // An upgrade whose grant is gone has nothing to upgrade; the waiter asks again and learns that.
  for (std::size_t i = 0; i < waiters_.size();) {
    const auto base = read_replaced(waiters_[i].was);
    if (!base || holder(waiters_[i].client, *base) != nullptr) {
      ++i;
      continue;
    }
    if (auto ok = erase(waiters_[i]); !ok) return ok;
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    queue_changed_ = true;
  }
  return {};
}

result<lock_rows::absence> lock_rows::check_absent_holders() {
  absence out;
  // In order: two clients that look at the same two sessions must not wait for each other.
  std::vector<std::string> suspects;
  for (const auto& held : holders_)
    if (held.grace > 0 && !held.is_present && held.client != me_) suspects.push_back(held.client);
  std::ranges::sort(suspects);
  suspects.erase(std::unique(suspects.begin(), suspects.end()), suspects.end());
  for (const auto& client : suspects) {
    auto found = on_.ask(sql().look_at_session, {client});
    if (found && found->empty()) {
      if (auto ok = on_.run(sql().insert_session, {client}); !ok) return std::move(ok).error();
      found = on_.ask(sql().look_at_session, {client});
    }
    if (!found) return std::move(found).error();
    if (found->empty()) return error{errc::unavailable, "The row of a session vanished."};
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
      const auto& held = holders_[i];
      const auto end = std::max(gone, held.since) + held.grace;
      if (held.client != client || held.grace == 0 || at < end) {
        if (held.client == client && held.grace > 0) {
          out.noticed = true;
          out.drop_at = out.drop_at == 0 ? end : std::min(out.drop_at, end);
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

result<void> lock_rows::drop_holder(std::size_t at) {
  if (!holders_[at].is_inline)
    if (auto ok = erase(holders_[at]); !ok) return ok;
  holders_.erase(holders_.begin() + static_cast<std::ptrdiff_t>(at));
  holders_changed_ = row_changed_ = true;
  return {};
}

result<void> lock_rows::erase(const entry& what) {
  auto gone = on_.run(sql().delete_entry,
                      {std::uint64_t{0}, std::string_view{name_}, what.client, what.seq});
  if (!gone) return std::move(gone).error();
  if (gone->affected > 0 && more_ > 0) --more_;
  row_changed_ = true;
  return {};
}

// While others wait, their clients may be about to queue up again by means of them. A free lock has none: a client that
// finds its own knows that there is a holder, which will see it waiting.
result<void> lock_rows::drop_leftovers() {
  const bool is_quiet = waiters_.empty() && !mine_ && all_waiters_read_;
  for (std::size_t i = 0; i < leftovers_.size();) {
    if (!is_quiet && leftovers_[i].since + leftovers_kept > now_) {
      ++i;
      continue;
    }
    if (auto ok = erase(leftovers_[i]); !ok) return ok;
    leftovers_.erase(leftovers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

// ---- changing

result<void> lock_rows::observe(std::string_view client, std::uint64_t seq,
                                microseconds_count length) {
  auto made = on_.run(sql().insert_observer,
                      {std::uint64_t{0}, std::string_view{name_}, client, seq, seq, length});
  if (!made) return std::move(made).error();
  if (made->affected == 1) ++more_;  // else it was there already
  ++places_;                         // see place_step
  row_changed_ = true;
  count_is_known_ = false;
  return {};
}

result<void> lock_rows::stop_observing(std::string_view client, std::uint64_t seq) {
  const auto at = std::ranges::find_if(
      observers_, [&](const entry& other) { return is_same(other, client, seq); });
  if (at == observers_.end()) return {};
  if (auto ok = erase(*at); !ok) return ok;
  observers_.erase(at);
  return {};
}

result<bool> lock_rows::remove(std::string_view client, std::uint64_t seq) {
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

result<void> lock_rows::remove_all_of(std::string_view client) {
  do {
    for (std::size_t i = 0; i < holders_.size();) {
      if (holders_[i].client != client) {
        ++i;
      } else if (auto ok = drop_holder(i); !ok) {
        return ok;
      }
    }
    for (auto* among : {&waiters_, &observers_, &leftovers_})
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

// Where it is: a renewal that is under way looks for it there, and may have written a later `expires` than was read.
result<const lock_rows::entry*> lock_rows::shrink(std::string_view client, std::uint64_t seq,
                                                  lock_mode to, std::uint64_t weight) {
  const auto held = std::ranges::find_if(
      holders_, [&](const entry& other) { return is_same(other, client, seq); });
  if (held == holders_.end()) return static_cast<const entry*>(nullptr);
  held->mode = to;
  held->weight = weight;
  held->was.clear();
  held->state = entry_state::holder;
  if (!held->is_inline) {
    auto ok = on_.run(sql().shrink_entry, {static_cast<std::uint64_t>(to), weight,
                                           std::string_view{name_}, client, seq});
    if (!ok) return std::move(ok).error();
  }
  holders_changed_ = row_changed_ = true;
  return &*held;
}

result<std::size_t> lock_rows::revoke() {
  const auto count = holders_.size();
  while (!holders_.empty()) {
    const auto& held = holders_.front();
    // A revocation notice: until it is read, or its client can no longer be there to read it.
    const microseconds_count kept = now_ + held.ttl + 60'000'000;
    auto made =
        on_.run(sql().insert_entry,
                {std::uint64_t{2}, std::string_view{name_}, held.client, held.seq, std::uint64_t{4},
                 static_cast<std::uint64_t>(held.mode), held.weight, held.token, held.ttl,
                 held.grace, now_, kept, std::int64_t{0}, std::int64_t{0}, std::uint64_t{0},
                 std::uint64_t{0}, std::string_view{}, std::string_view{}});
    if (!made) return std::move(made).error();
    wake_after_commit(held);
    if (auto ok = drop_holder(0); !ok) return std::move(ok).error();
  }
  return count;
}

}  // namespace holdfast::engines::mysql
