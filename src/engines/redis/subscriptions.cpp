#include "engines/redis/subscriptions.hpp"

#include "support/parker.hpp"

#include <vector>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds kept_unused = 1s;
constexpr nanoseconds longest_answer = 5s;

}  // namespace

std::uint64_t subscriptions::heard(std::string_view name) const {
  if (is_empty()) return 0;
  const std::lock_guard lock{guard_};
  const auto at = channels_.find(name);
  return at != channels_.end() && at->second.is == state::confirmed ? at->second.heard : 0;
}

void subscriptions::listen(std::string name, std::uint64_t id, std::uint64_t seen,
                           const call& limits, wake done) {
  bool begins = false;
  {
    const std::lock_guard lock{guard_};
    auto& entry = channels_[name];
    count_.store(channels_.size(), std::memory_order_release);
    entry.waiters.insert(id);
    entry.used_at = std::chrono::steady_clock::now();
    begins = entry.is == state::none;
  }
  // First be ready to be woken, then see whether there is a reason already.
  waits_.for_grant(id, limits,
                   [this, name, id, done = std::move(done)](const std::optional<pushed_grant>&) {
                     auto failure = stop_waiting(name, id);
                     if (failure) return done(std::move(*failure));
                     done({});
                   });
  if (begins)
    connections_.driver().post([this, open = is_open_, name] {
      if (*open) begin(name);
    });
  const auto now = heard(name);
  if (now != 0 && now != seen) waits_.look_again(id);
}

// Returns why it was in vain, if it was.
std::optional<error> subscriptions::stop_waiting(const std::string& name, std::uint64_t id) {
  std::optional<error> failure;
  bool unused = false;
  {
    const std::lock_guard lock{guard_};
    const auto at = channels_.find(name);
    if (at == channels_.end()) return std::nullopt;
    auto& entry = at->second;
    entry.waiters.erase(id);
    if (entry.is == state::none) failure = entry.failure;
    unused = entry.waiters.empty() && !std::exchange(entry.is_checked, true);
  }
  if (unused) check_later(name);
  return failure;
}

void subscriptions::wake_all(const std::string& name, const std::function<void(channel&)>& change) {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock{guard_};
    const auto at = channels_.find(name);
    if (at == channels_.end()) return;
    change(at->second);
    at->second.heard = ++last_heard_;
    ids.assign(at->second.waiters.begin(), at->second.waiters.end());
  }
  for (const auto id : ids) waits_.look_again(id);
}

// ---- on the reactor's thread

// SUBSCRIBE is answered by a message, or by an error in the place of an answer; PING behind it is always answered. So
// the answer to PING says that the server has done it, and an error that one answer too many is on its way.
class subscriptions::asked final : public net::reply_handler {
 public:
  asked(subscriptions& in, std::function<void(std::optional<error>)> then)
      : in_(in), then_(std::move(then)) {}

 private:
  void on_reply(result<std::string_view> frames) noexcept override {
    const auto then = std::move(then_);
    auto& in = in_;
    delete this;
    if (!frames)  // whatever was sent, it is repeated for the next waiter
      return then(error{errc::unavailable, frames.error().message()});
    const auto got =
        in.connections_.read(*frames, command({"PING"}), {}, in.connections_.stream(), 0);
    if (got) return then(std::nullopt);
    if (*in.is_open_) in.connections_.stream().drop(got.error());
    then(got.error());
  }
  subscriptions& in_;
  std::function<void(std::optional<error>)> then_;
};

void subscriptions::send(std::string_view verb, const std::string& name,
                         std::function<void(std::optional<error>)> then) {
  std::string request;
  resp::append_command(request, {verb, name});
  resp::append_command(request, {"PING"});
  const net::limits until{std::chrono::steady_clock::now() + longest_answer, {}};
  connections_.stream().send(request, 1, until, *new asked{*this, std::move(then)});
}

void subscriptions::close() {
  support::parker told;
  connections_.driver().post([this, &told] {
    *is_open_ = false;
    told.set(1);
  });
  told.wait(steady_time::max());
}

void subscriptions::begin(const std::string& name) {
  {
    const std::lock_guard lock{guard_};
    const auto at = channels_.find(name);
    if (at == channels_.end() || at->second.is != state::none) return;
    at->second.is = state::asking;
    at->second.failure.reset();
  }
  send("SUBSCRIBE", name, [this, name](const std::optional<error>& failure) {
    wake_all(name, [&failure](channel& entry) {
      entry.is = failure ? state::none : state::confirmed;
      entry.failure = failure;
    });
  });
}

void subscriptions::check_later(const std::string& name) {
  connections_.driver().at(std::chrono::steady_clock::now() + kept_unused,
                           [this, open = is_open_, name] {
                             if (*open) check(name);
                           });
}

// Is it still wanted? The last waiter to go has this looked at, once.
void subscriptions::check(const std::string& name) {
  bool again = false;
  {
    const std::lock_guard lock{guard_};
    const auto at = channels_.find(name);
    if (at == channels_.end()) return;
    auto& entry = at->second;
    const auto unused_for = std::chrono::steady_clock::now() - entry.used_at;
    again = entry.is == state::asking || unused_for < kept_unused;
    entry.is_checked = entry.waiters.empty() && again;
    if (!entry.waiters.empty()) return;
    if (!again) {
      const bool listened = entry.is == state::confirmed;
      channels_.erase(at);
      count_.store(channels_.size(), std::memory_order_release);
      if (!listened) return;
    }
  }
  if (again) return check_later(name);
  send("UNSUBSCRIBE", name, [](const std::optional<error>&) {});
}

void subscriptions::on_push(std::string_view frame) {
  const auto push = resp::take(frame);
  if (!push || push->items.size() != 3 || push->items[0].text != "message") return;
  wake_all(std::string{push->items[1].text}, [](const channel&) {});
}

void subscriptions::on_down() {
  {
    const std::lock_guard lock{guard_};
    for (auto& [name, entry] : channels_)
      if (entry.is == state::confirmed) entry.is = state::none;
  }
  waits_.look_again_all();
}

}  // namespace holdfast::engines::redis
