// Asking for a lock: enter, enter_all, settle, await, leave.
#include "engines/common/sentences.hpp"
#include "engines/mysql/errors.hpp"
#include "engines/mysql/lock_rows_parts.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include "support/parker.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds first_poll = 5ms, longest_poll = 250ms;

nanoseconds from_us(microseconds_count later, microseconds_count earlier) {
  return std::chrono::microseconds{static_cast<std::int64_t>(later) -
                                   static_cast<std::int64_t>(earlier)};
}

// In memo: this handle has met others here, so the one-statement path would only cost a round trip.
bool expects_others(const request& ask) {
  return ask.memo != nullptr && ask.memo->load(std::memory_order_relaxed) != 0;
}
void note_others(const request& ask, bool are_there) {
  if (ask.memo != nullptr && expects_others(ask) != are_there)
    ask.memo->store(are_there ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace

requester mysql_engine::self(bool push) const {
  return {session_.client(), in_us(session_.grace()), push};
}

grant mysql_engine::grant_of(const lock_rows::entry& held, std::string_view name,
                             microseconds_count now, const sending& asked) {
  return session_.grant_of({name,
                            owner_id{client_, held.seq},
                            held.mode,
                            held.weight,
                            {held.token},
                            from_us(held.ttl, 0),
                            from_us(held.expires, now),
                            !held.is_inline},
                           asked);
}

// ---- one name, in a transaction

// Again, when the server has ended it because it met another one (which is rare: see the order of locking), or when the
// connection had ended before the commit was sent: nothing of it has happened.
result<bool> mysql_engine::with_lock_rows(std::string_view name, const owner_id& owner,
                                          std::uint64_t create, const call& limits,
                                          const std::function<result<void>(lock_rows&)>& change) {
  constexpr int attempts = 4;
  for (int attempt = 1;; ++attempt) {
    bool again = false;
    auto done = try_lock_rows(name, owner, create, limits, change, again);
    if (done || !again || attempt == attempts ||
        std::chrono::steady_clock::now() >= limits.deadline || limits.stop.stop_requested())
      return done;
  }
}

result<bool> mysql_engine::try_lock_rows(std::string_view name, const owner_id& owner,
                                         std::uint64_t create, const call& limits,
                                         const std::function<result<void>(lock_rows&)>& change,
                                         bool& again) {
  auto on = transactions_.take(limits, name);
  if (!on) return std::move(on).error();
  const auto asked = session_.now();
  const auto give_up = [&](error why) -> result<bool> {
    again =
        is_deadlock((*on)->last_error()) || ((*on)->is_broken() && why.code() == errc::unavailable);
    (*on)->rollback();
    return why;
  };
  auto opened = lock_rows::open(**on, name, create != 0, create, session_.client(), owner.sequence);
  if (!opened) return give_up(std::move(opened).error());
  if (!*opened) {
    (*on)->rollback();
    return false;
  }
  if (auto ok = change(**opened); !ok) return give_up(std::move(ok).error());
  if (auto ok = finish(**on, {&**opened, 1}, asked); !ok) return give_up(std::move(ok).error());
  return true;
}

result<void> mysql_engine::finish(connection& on, std::span<lock_rows> changed,
                                  const sending& asked) {
  for (auto& rows_of_name : changed) {
    if (auto ok = rows_of_name.close(); !ok) return ok;
  }
  if (auto ok = on.commit(); !ok) return ok;
  for (auto& rows_of_name : changed) {
    rows_of_name.wake();
    for (const auto& mine : rows_of_name.arrivals_of(session_.client())) {
      told_grant won;
      won.token.value = mine.token;
      won.ttl = from_us(mine.ttl, 0);
      won.left = from_us(mine.expires, rows_of_name.now());
      won.asked = asked;
      won.mode = mine.mode;
      won.weight = mine.weight;
      waits_.granted(mine.seq, won);
    }
  }
  return {};
}

// ---- enter

result<entered> mysql_engine::enter(const request& ask, const call& limits) {
  after_releases(ask.name, limits);
  const bool expects = expects_others(ask);
  if (ask.replaces == nullptr && !(ask.wait && expects)) {
    auto on = plain_.take(limits, ask.name);
    if (!on) return std::move(on).error();
    if (!ask.wait && expects && is_surely_taken(**on, ask)) return entered{};
    const auto ttl = in_us(ask.ttl);
    const auto asked = session_.now();
    auto won = (*on)->run(sql().enter, {ask.name, ask.capacity, std::string_view{session_.client()},
                                        ask.owner.sequence, static_cast<std::uint64_t>(ask.mode),
                                        ask.weight, ttl, in_us(session_.grace()), ttl, ask.label});
    if (!won) return std::move(won).error();
    if (won->affected > 0) {
      note_others(ask, false);
      entered out;
      out.what = entered::kind::granted;
      out.granted = session_.grant_of(
          {ask.name, ask.owner, ask.mode, ask.weight, {won->insert_id}, ask.ttl, ask.ttl, false},
          asked);
      return out;
    }
    note_others(ask, true);
    if (!ask.wait && is_surely_taken(**on, ask)) return entered{};
  }
  if (ask.wait) {
    // Without a session it would be taken for dead, and be passed over.
    if (listener_ && session_.is_gone())
      if (auto ok = session_.try_revive(limits); !ok) return std::move(ok).error();
    bool is_queued = false;
    auto queued = queue_again(ask, limits, is_queued);
    if (!queued) return std::move(queued).error();
    if (*queued) return **queued;
    if (is_queued) {
      auto in = enter_slowly(ask, limits);
      if (!in) return as_doubt(in.error());  // core leaves the place, or finds out
      return in;
    }
  }
  return enter_slowly(ask, limits);
}

bool mysql_engine::is_surely_taken(connection& on, const request& ask) {
  const auto found = on.ask(
      sql().surely_taken,
      {ask.name, ask.capacity, std::string_view{session_.client()}, ask.owner.sequence, ask.weight,
       ask.weight, std::uint64_t{ask.order == queue_order::barging}, -std::int64_t{ask.priority}});
  return found && found->front().number(0) != 0;
}

// One attempt of enter, with the rows of the name open. When nothing came of a transaction it is made again, from the
// beginning.
class mysql_engine::entering {
 public:
  entering(mysql_engine& in, const request& ask, bool push)
      : in_(in), ask_(ask), push_(push), asked_(in.session_.now()) {}

  result<void> change(lock_rows& at);
  const entered& outcome() const noexcept { return out_; }

 private:
  std::string_view me() const noexcept { return in_.session_.client(); }
  std::uint64_t seq() const noexcept { return ask_.owner.sequence; }

  bool take_what_is_held(const lock_rows& at);
  result<void> check_first_time(lock_rows& at) const;
  result<void> wait(lock_rows& at, bool is_known, const lock_rows::absence& dead);
  result<void> watch_ahead(lock_rows& at, const lock_rows::entry& mine,
                           const lock_rows::absence& dead);
  steady_time recheck(const lock_rows& at, const lock_rows::entry& mine,
                      const lock_rows::absence& dead) const;

  mysql_engine& in_;
  const request& ask_;
  const bool push_;  // our listener will hear of the grant
  const sending asked_;
  entered out_;
};

result<entered> mysql_engine::enter_slowly(const request& ask, const call& limits) {
  entering attempt{*this, ask, listener_ && ask.wait && listener_->ensure(limits)};
  auto done = with_lock_rows(ask.name, ask.owner, ask.capacity, limits,
                             [&](lock_rows& at) { return attempt.change(at); });
  // A waiter that is queued all the same asks again, and watches again.
  if (listener_ && (!done || attempt.outcome().what != entered::kind::waiting))
    listener_->unwatch(ask.owner.sequence);
  if (!done) return std::move(done).error();
  return attempt.outcome();
}

result<void> mysql_engine::entering::change(lock_rows& at) {
  out_ = {};
  if (auto ok = at.bring_up_to_date(); !ok) return ok;
  if (auto ok = at.confirm(me(), seq()); !ok) return ok;
  if (take_what_is_held(at)) return {};
  const bool is_known = at.waiter(me(), seq()) != nullptr;
  if (!is_known)
    if (auto ok = check_first_time(at); !ok) return ok;
  lock_rows::absence dead;
  if (is_known || !at.may_enter(ask_)) {
    auto looked = at.check_absent_holders();
    if (!looked) return std::move(looked).error();
    dead = *looked;
    if (take_what_is_held(at)) return {};
  }
  if (!is_known && at.may_enter(ask_)) {
    note_others(ask_, !at.waiters().empty());
    if (auto ok = at.admit(ask_, in_.self(push_)); !ok) return ok;
    take_what_is_held(at);
    return {};
  }
  note_others(ask_, true);
  return ask_.wait ? wait(at, is_known, dead) : result<void>{};  // or busy
}

// Ours already: by an attempt whose answer was lost, or because another client let us in.
bool mysql_engine::entering::take_what_is_held(const lock_rows& at) {
  const auto* mine = at.holder(me(), seq());
  if (mine == nullptr || mine->mode != ask_.mode) return false;
  out_.what = entered::kind::granted;
  out_.granted = in_.grant_of(*mine, ask_.name, at.now(), asked_);
  return true;
}

result<void> mysql_engine::entering::check_first_time(lock_rows& at) const {
  if (ask_.replaces != nullptr && at.holder(me(), ask_.replaces->owner.sequence) == nullptr)
    return lock_not_held(ask_.name, in_.how_.url, ask_.replaces->owner);
  const auto capacity = at.is_in_use() ? at.capacity() : ask_.capacity;
  if (capacity != ask_.capacity || ask_.weight > capacity)
    return other_capacity(ask_, capacity, in_.how_.url);
  at.set_capacity(capacity);
  return {};
}

result<void> mysql_engine::entering::wait(lock_rows& at, bool is_known,
                                          const lock_rows::absence& dead) {
  auto queued = is_known ? at.touch_waiter(me(), seq()) : at.queue_up(ask_, in_.self(push_));
  if (!queued) return queued;
  const auto& mine = *at.waiter(me(), seq());
  out_.what = entered::kind::waiting;
  out_.waiting = ticket{ask_.name, ask_.owner, 0, recheck(at, mine, dead)};
  if (!push_ || in_.session_.grace() == 0ns) return {};
  return watch_ahead(at, mine, dead);
}

// The listener watches the client ahead of us, unless that was found absent already: then recheck() is its end.
result<void> mysql_engine::entering::watch_ahead(lock_rows& at, const lock_rows::entry& mine,
                                                 const lock_rows::absence& dead) {
  std::string ahead;
  if (!dead.noticed) {
    auto found = at.predecessor(mine);
    if (!found) return std::move(found).error();
    ahead = std::move(*found);
  }
  if (const auto listener = in_.listener_->watch(seq(), ahead); listener != 0)
    at.also_wake(listener);
  return {};
}

// When to ask again although nothing was heard: when the first holder's time is over, or its absence long enough.
steady_time mysql_engine::entering::recheck(const lock_rows& at, const lock_rows::entry& mine,
                                            const lock_rows::absence& dead) const {
  const auto now = in_.clock_.now();
  nanoseconds wait = longest_recheck;
  if (!push_) {
    const nanoseconds waited = from_us(at.now(), std::min(mine.since, at.now()));
    wait = std::clamp<nanoseconds>(waited / 4, first_poll, longest_poll);
  }
  const bool is_first = at.is_first(mine);
  if (const auto over = at.first_expiry(); over != 0)
    wait = std::min<nanoseconds>(wait, from_us(over, at.now()) + (is_first ? 1ms : 50ms));
  if (dead.noticed) wait = std::min<nanoseconds>(wait, from_us(dead.drop_at, at.now()) + 1ms);
  if (!mine.was.empty()) wait = std::min<nanoseconds>(wait, 1s);
  return now + std::max<nanoseconds>(wait, 2ms);
}

// ---- several at once

// The names come sorted, and so are their rows locked.
result<std::vector<grant>> mysql_engine::enter_all(std::span<const request> asks,
                                                   const call& limits) {
  for (const auto& ask : asks) after_releases(ask.name, limits);
  auto on = transactions_.take(limits, asks.front().name);
  if (!on) return std::move(on).error();
  (*on)->begin(limits, asks.front().name, asks.size() > 1);
  const auto asked = session_.now();
  std::vector<lock_rows> all;
  const auto give_up = [&](result<std::vector<grant>> why) {
    (*on)->rollback();
    return why;
  };
  for (const auto& ask : asks) {
    auto opened =
        lock_rows::open(**on, ask.name, true, ask.capacity, session_.client(), ask.owner.sequence);
    if (!opened) return give_up(std::move(opened).error());
    auto& at = all.emplace_back(std::move(**opened));
    if (auto ok = at.bring_up_to_date(); !ok) return give_up(std::move(ok).error());
    if (at.is_in_use() && at.capacity() != ask.capacity)
      return give_up(other_capacity(ask, at.capacity(), how_.url));
    at.set_capacity(ask.capacity);
    if (!at.may_enter(ask)) return give_up(std::vector<grant>{});
    if (auto ok = at.admit(ask, self(false)); !ok) return give_up(std::move(ok).error());
  }
  std::vector<grant> out;
  for (std::size_t i = 0; i < all.size(); ++i)
    out.push_back(grant_of(*all[i].holder(session_.client(), asks[i].owner.sequence), asks[i].name,
                           all[i].now(), asked));
  if (auto ok = finish(**on, all, asked); !ok) return give_up(std::move(ok).error());
  return out;
}

// ---- what became of it

// What was given up may still be on its way to take the lock, or a place in its queue. Before an owner is said to be
// gone for good, that must have ended.
result<void> mysql_engine::end_late_requests(std::string_view name, const call& limits) {
  if (!late_requests_.any(name)) return {};
  auto on = plain_.take(limits, name);
  if (!on) return std::move(on).error();
  return late_requests_.end_all(name, **on, how_, limits);
}

result<entered> mysql_engine::settle(const request& ask, const call& limits) {
  if (auto ok = end_late_requests(ask.name, limits); !ok) return std::move(ok).error();
  auto on = plain_.take(limits, ask.name);
  if (!on) return std::move(on).error();
  const auto asked = session_.now();
  const std::string_view me = session_.client();
  const auto seq = ask.owner.sequence;
  auto found = (*on)->ask(sql().find_owner, {ask.name, me, seq, ask.name, me, seq});
  if (!found) return std::move(found).error();
  entered out;
  const bool is_queued = !found->empty() && found->front().number(0) == 2;
  if (listener_ && !is_queued) listener_->unwatch(seq);
  if (found->empty()) {
    waits_.forget(seq);
    return out;
  }
  const auto& found_row = found->front();
  if (is_queued) {
    out.what = entered::kind::waiting;
    out.waiting = ticket{ask.name, ask.owner, 0, clock_.now() + 100ms};
    return out;
  }
  lock_rows::entry held;
  held.seq = seq;
  held.mode = static_cast<lock_mode>(found_row.number(1));
  held.weight = found_row.number(2);
  held.token = found_row.number(3);
  held.ttl = found_row.number(4);
  held.expires = found_row.number(6);
  held.is_inline = found_row.number(0) == 0;
  out.what = entered::kind::granted;
  out.granted = grant_of(held, ask.name, found_row.number(7), asked);
  return out;
}

// ---- waiting

progress mysql_engine::read_told(const std::optional<told_grant>& news, const ticket& place) {
  progress out;
  if (!news) return out;
  out.is_granted = true;
  out.granted = session_.grant_of(
      {place.name, place.owner, news->mode, news->weight, news->token, news->ttl, news->left, true},
      news->asked);
  return out;
}

result<progress> mysql_engine::await(const ticket& place, const call& limits) {
  support::parker waiter;
  std::optional<told_grant> news;
  call only_stop;
  only_stop.stop = limits.stop;
  const auto number = place.owner.sequence;
  waits_.for_grant(number, only_stop, [&](const std::optional<told_grant>& what) {
    news = what;
    waiter.set(1);
  });
  if (waiter.wait(std::min(limits.deadline, on_steady_clock(place.recheck_at))) == 0) {
    waits_.look_again(number);  // or the news is on its way already
    waiter.wait(steady_time::max());
  }
  if (news && listener_) listener_->unwatch(number);
  return read_told(news, place);
}

void mysql_engine::start_await(const ticket& place, const call& limits,
                               completion<progress>& done) noexcept {
  auto bounded = limits;
  bounded.deadline = std::min(limits.deadline, on_steady_clock(place.recheck_at));
  waits_.for_grant(place.owner.sequence, bounded,
                   [this, &place, &done](const std::optional<told_grant>& news) {
                     if (news && listener_) listener_->unwatch(place.owner.sequence);
                     done.complete(read_told(news, place));
                   });
}

result<void> mysql_engine::leave(const ticket& place, const call& limits) {
  const auto seq = place.owner.sequence;
  const std::string_view me = session_.client();
  if (listener_) listener_->unwatch(seq);
  if (auto ok = end_late_requests(place.name, limits); !ok) return ok;
  auto done =
      with_lock_rows(place.name, place.owner, 0, limits, [&](lock_rows& at) -> result<void> {
        if (place.replacing && at.waiter(me, seq) == nullptr) return {};  // what was granted stays
        auto gone = at.remove(me, seq);
        if (!gone) return std::move(gone).error();
        return {};
      });
  if (!done) return std::move(done).error();
  waits_.forget(seq);
  return {};
}

}  // namespace holdfast::engines::mysql
