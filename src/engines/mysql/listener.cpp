#include "engines/mysql/listener.hpp"

#include "engines/mysql/errors.hpp"

#include <algorithm>
#include <utility>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

// Bounded, because the statement's view of the data keeps the server from tidying up behind it.
constexpr auto longest_sleep = 5s;
constexpr auto first_pause = 20ms, longest_pause = 1000ms;

std::uint64_t in_ms(nanoseconds length) {
  return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(length).count());
}

// As statements::watch_for_news adds them up.
std::uint64_t digest_of(std::uint64_t token) { return token % 4294967296U + 1; }

}  // namespace

bool listener::ensure(const call& limits) {
  std::unique_lock lock{guard_};
  if (connection_) return true;
  if (ending_) return false;
  if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
  failed_ = false;
  poked_ = true;
  changed_.notify_all();
  changed_.wait_until(lock, limits.deadline, [this] { return connection_ || failed_ || ending_; });
  return connection_ != nullptr;
}

bool listener::is_there() const {
  const std::lock_guard lock{guard_};
  return connection_ != nullptr;
}

void listener::poke() noexcept {
  const std::lock_guard lock{guard_};
  poked_ = true;
  changed_.notify_all();
}

std::uint64_t listener::watch(std::uint64_t number, const std::string& client) {
  const std::lock_guard lock{guard_};
  if (client.empty() || client == session_.client()) {
    watching_.erase(number);
    return 0;
  }
  watching_[number] = client;
  if (!asleep_ || interrupted_ || watched_ == client || !connection_) return 0;
  interrupted_ = true;
  return connection_->own_identity().id;
}

void listener::unwatch(std::uint64_t number) {
  const std::lock_guard lock{guard_};
  watching_.erase(number);
}

void listener::observe(std::uint64_t number) {
  const std::lock_guard lock{guard_};
  observing_.insert(number);
}

void listener::unobserve(std::uint64_t number) {
  const std::lock_guard lock{guard_};
  observing_.erase(number);
}

std::optional<listener::arrival> listener::told(std::uint64_t number) const {
  const std::lock_guard lock{guard_};
  const auto known = arrived_.find(number);
  return known == arrived_.end() ? std::nullopt : std::optional{known->second};
}

void listener::released(std::uint64_t number) {
  const std::lock_guard lock{guard_};
  const auto known = arrived_.find(number);
  if (known == arrived_.end()) return;
  digest_ -= digest_of(known->second.token);
  arrived_.erase(known);
}

void listener::finish() noexcept {
  {
    const std::lock_guard lock{guard_};
    ending_ = true;
    if (connection_) connection_->cut();
  }
  stop_.request_stop();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void listener::run() {
  nanoseconds pause = first_pause;
  std::unique_lock lock{guard_};
  while (!ending_) {
    // Idle: the connection stays, and so does its user lock.
    changed_.wait(lock, [this] { return ending_ || poked_ || always_; });
    poked_ = false;
    if (ending_) break;
    lock.unlock();
    const auto connected = connect();
    lock.lock();
    if (!connected) {
      failed_ = true;
      changed_.notify_all();
      lock.unlock();
      waits_.look_again_all();  // there may have been news, and will be none for a while
      lock.lock();
      changed_.wait_for(lock, pause, [this] { return ending_; });
      pause = std::min<nanoseconds>(pause * 2, longest_pause);
      poked_ = poked_ || always_ || !observing_.empty();
      continue;
    }
    pause = first_pause;
    changed_.notify_all();
    const auto on = connection_;
    lock.unlock();
    listen(*on);
    lock.lock();
    if (on->is_broken()) {
      connection_.reset();
      lock.unlock();
      waits_.look_again_all();
      lock.lock();
      poked_ = true;
    }
  }
  connection_.reset();
}

result<void> listener::connect() {
  {
    const std::lock_guard lock{guard_};
    if (connection_ && !connection_->is_broken()) return {};
    connection_.reset();
  }
  auto limits = within(longest_sleep);
  limits.stop = stop_.get_token();
  auto fresh = connection::open(how_, by_, connection::kind::plain, limits);
  if (!fresh) return std::move(fresh).error();
  (*fresh)->begin(limits, {});
  const auto name = listener_lock(session_.client());
  auto got = (*fresh)->ask(sql().take_lock, {std::string_view{name}, std::uint64_t{2}});
  if (!got) return std::move(got).error();
  if (got->front().number(0) != 1)
    return error{errc::unavailable, "The listener before this one is still there."};
  const std::lock_guard lock{guard_};
  digest_ = 0;
  if (ending_) return error{errc::unavailable, "The client is closing."};
  connection_ = std::move(*fresh);
  return {};
}

// The user lock of the client we watched is not ours to keep: that client may come back, and as long as we have the
// lock, it looks as if the client were there. An interruption may hit the statement that gives it back, or hide that we
// got it; then the next sleep gives it back first, and if there is none, this does.
void listener::let_go(connection& on) {
  const auto name = session_lock(watched_last_);
  while (!on.is_broken()) {
    on.begin(within(longest_sleep), {});
    if (on.ask(sql().free_lock, {std::string_view{name}}) || !is_interrupted(on.last_error()))
      break;
  }
  may_have_it_ = false;
}

void listener::listen(connection& on) {
  listen_on(on);
  if (may_have_it_) let_go(on);
}

// Until it breaks, or this client has no waiter any more.
void listener::listen_on(connection& on) {
  while (always_ || waits_.any()) {
    {
      const std::lock_guard lock{guard_};
      if (ending_) return;
    }
    if (!sleep(on) || !read_news(on)) {
      if (on.is_broken()) return;
      if (is_interrupted(on.last_error())) continue;
      // Something is wrong with the server rather than with the connection: ask again, but not at once.
      std::unique_lock lock{guard_};
      changed_.wait_for(lock, longest_pause, [this] { return ending_; });
      lock.unlock();
      waits_.look_again_all();
    }
  }
}

// With one client to watch it sleeps on the lock of that client; with several on none of them, but not for long, and
// then it asks for all. Otherwise it sleeps on the lock of its own session, whose end concerns us more. (SLEEP would be
// the plain way to sleep, but with several sleepers MariaDB's KILL QUERY now and then takes two seconds to wake one.)
result<void> listener::sleep(connection& on) {
  // What an interrupted statement may have kept goes back before another name is slept on: it may be the session lock
  // of a client that lives and wants it back, or the only sign that a client is dead.
  if (may_have_it_) let_go(on);
  std::set<std::string> ahead;
  std::uint64_t digest = 0;
  {
    const std::lock_guard lock{guard_};
    for (const auto& [number, client] : watching_) ahead.insert(client);
    watched_ = ahead.size() == 1 ? *ahead.begin() : session_.client();
    asleep_ = true;
    interrupted_ = false;
    digest = digest_;
  }
  const auto watched = ahead.size() == 1 ? *ahead.begin() : session_.client();
  nanoseconds length = longest_sleep;
  if (ahead.size() > 1) length = std::min<nanoseconds>(length, session_.sleep_between_looks());
  on.begin(within(length + longest_sleep), {});
  const auto name = session_lock(watched);
  const auto before = session_lock(std::exchange(watched_last_, watched));
  auto woken = on.ask(sql().watch_for_news,
                      {std::string_view{session_.client()}, digest, std::string_view{before},
                       std::string_view{name}, in_ms(length)});
  may_have_it_ = !woken;
  const bool is_gone = woken && !woken->front().is_null(0) && woken->front().number(0) == 1;
  std::vector<std::uint64_t> waiters_behind;
  {
    const std::lock_guard lock{guard_};
    asleep_ = false;
    for (const auto& [number, client] : watching_)
      if (is_gone && client == watched) waiters_behind.push_back(number);
    for (const auto number : waiters_behind) watching_.erase(number);
  }
  if (!woken && !is_interrupted(on.last_error())) return std::move(woken).error();
  if (is_gone) {
    let_go(on);
    if (watched == session_.client()) return session_.revive(within(longest_sleep));
    for (const auto number : waiters_behind) waits_.look_again(number);
  }
  return ahead.size() > 1 ? ask_for_all(on) : result<void>{};
}

result<void> listener::ask_for_all(connection& on) {
  if (session_.grace() == 0ns) return {};
  on.begin(within(longest_sleep), {});
  const std::string_view me = session_.client();
  auto found = on.ask(sql().absent_holders, {me, me});
  if (!found) return std::move(found).error();
  for (const auto& waiter : *found) waits_.look_again(waiter.number(0));
  return {};
}

result<void> listener::read_news(connection& on) {
  on.begin(within(longest_sleep), {});
  news all;
  {
    const std::lock_guard lock{guard_};
    all.not_seen = observing_;
  }
  const auto asked = session_.now();
  const auto watched = session_lock(watched_last_);
  auto found = on.ask(sql().news, {std::string_view{watched}, std::string_view{session_.client()}});
  if (!found) return std::move(found).error();
  if (!found->empty()) may_have_it_ = found->front().number(12) != 0;
  for (const auto& from : *found) {
    if (is_revocation(from)) {
      all.lost.push_back({client_, from.number(2)});
    } else {
      read_entry(from, asked, all);
    }
  }
  deliver(std::move(all));
  // Afterwards: a heartbeat that finds no revocation notice any more prolongs what core still believes in. What cannot
  // be deleted now is delivered again by the next look.
  const std::string_view me = session_.client();
  for (const auto& from : *found)
    if (is_revocation(from))
      static_cast<void>(on.run(sql().delete_revocation, {from.bytes(1), me, from.number(2)}));
  return {};
}

// A grant of ours, or the row of an observer of ours: nothing has happened to what it observes.
void listener::read_entry(const row& from, const sending& asked, news& to) {
  const auto number = from.number(2);
  const auto token = from.number(6);
  to.digest += digest_of(token);
  to.not_seen.erase(number);
  if (static_cast<entry_state>(from.number(3)) != entry_state::arrived) return;
  to.arrived.emplace(number, arrival{token, from.integer(10), from.number(11)});
  told_grant won;
  won.token.value = token;
  won.mode = static_cast<lock_mode>(from.number(4));
  won.weight = from.number(5);
  won.ttl = std::chrono::microseconds{from.integer(7)};
  won.left = std::chrono::microseconds{from.integer(8) - from.integer(9)};
  won.asked = asked;
  to.fresh.emplace_back(number, won);
}

// Every waiter hears of its grant once, though its row is read as often as there are news.
void listener::deliver(news what) {
  {
    const std::lock_guard lock{guard_};
    std::erase_if(what.fresh, [this](const auto& told) {
      const auto known = arrived_.find(told.first);
      return known != arrived_.end() && known->second.token == told.second.token.value;
    });
    digest_ = what.digest;
    arrived_ = std::move(what.arrived);
  }
  if (!what.lost.empty()) to_.on_lost(what.lost, "it was revoked");
  for (const auto& [number, won] : what.fresh) waits_.granted(number, won);
  for (const auto number : what.not_seen) waits_.look_again(number);
}

}  // namespace holdfast::engines::mysql
