// A channel is its connections, one after the other, and the time between them.
#include "net/channel.hpp"

#include "net/connection.hpp"
#include "net/reactor_impl.hpp"
#include "support/fork.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <utility>

namespace holdfast::net {

namespace {

constexpr nanoseconds first_delay = std::chrono::milliseconds{10};
constexpr nanoseconds longest_delay = std::chrono::seconds{1};
// A connection that lasted so long, or has answered anything, was a good one: the next attempt need not wait.
constexpr nanoseconds good_life = std::chrono::seconds{1};

// Half of it to all of it, so that a thousand clients do not come back at the same instant.
nanoseconds jittered(nanoseconds delay) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return nanoseconds{
      std::uniform_int_distribution<std::int64_t>{delay.count() / 2, delay.count()}(random)};
}

}  // namespace

class channel::state final : public connection_owner, public std::enable_shared_from_this<state> {
 public:
  state(reactor::impl& loop, channel_options options)
      : loop_(loop), options_(std::make_shared<const channel_options>(std::move(options))) {}

  // The connection to use now; begins to make one when there is none and it is not too early to try again.
  result<std::shared_ptr<connection>> current();
  void close() noexcept;
  void send(std::string_view request, unsigned replies, const limits& until, reply_handler& done,
            connection::pace how) noexcept;
  void drop(const error& why) noexcept;
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }

  bool forked() const noexcept { return born_ != support::fork_generation(); }
  error fork_refusal() const;
  // Of a forked child: lets go of the socket without a word, because it is the parent's too.
  void close_in_child() const noexcept;
  bool on_reactor() const noexcept { return loop_.on_thread(); }
  const channel_options& options() const noexcept { return *options_; }

 private:
  std::uint64_t accepted(const connection& which, int fd) noexcept override;
  void lost(const connection& which, const error& why) noexcept override;
  channel_listener* listener() noexcept override {
    return closed_.load() ? nullptr : options_->listener;
  }

  reactor::impl& loop_;
  const std::shared_ptr<const channel_options> options_;
  const std::uint64_t born_ = support::fork_generation();
  std::atomic<std::uint64_t> generation_{0};  // of the connection that is up
  std::atomic<int> socket_{-1};               // of the same, for a forked child
  std::atomic<bool> closed_{false};

  std::mutex guard_;
  std::shared_ptr<connection> current_;
  std::uint64_t generations_ = 0;
  steady_time up_since_{};
  nanoseconds delay_{};
  steady_time retry_at_{};  // in the past: at once
  error last_{errc::unavailable, "There was no attempt to connect yet."};
};

result<std::shared_ptr<connection>> channel::state::current() {
  std::lock_guard locked{guard_};
  if (current_) return current_;
  if (closed_.load())
    return error{errc::unavailable,
                 fmt::format("the channel to {} is closed", options_->description)};
  if (std::chrono::steady_clock::now() < retry_at_) return last_;
  current_ = std::make_shared<connection>(loop_, options_, weak_from_this());
  loop_.post([made = current_] { made->open(); });
  return current_;
}

std::uint64_t channel::state::accepted(const connection& which, int fd) noexcept {
  std::lock_guard locked{guard_};
  ++generations_;
  if (current_.get() != &which) return generations_;  // closed meanwhile; it will hear of that
  up_since_ = std::chrono::steady_clock::now();
  socket_.store(fd);
  generation_.store(generations_);
  return generations_;
}

void channel::state::lost(const connection& which, const error& why) noexcept {
  std::shared_ptr<connection> gone;  // let go without the lock
  std::lock_guard locked{guard_};
  if (current_.get() != &which) return;
  gone = std::move(current_);
  socket_.store(-1);
  const auto now = std::chrono::steady_clock::now();
  const bool was_up = generation_.exchange(0) != 0;
  const bool good = was_up && (which.answered() || now - up_since_ >= good_life);
  delay_ = good ? nanoseconds::zero() : std::clamp(delay_ * 2, first_delay, longest_delay);
  retry_at_ = now + jittered(delay_);
  last_ = why;
  if (!options_->keep_open || closed_.load()) return;
  loop_.at(retry_at_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) static_cast<void>(self->current());
  });
}

void channel::state::close() noexcept {
  closed_.store(true);
  std::shared_ptr<connection> last;
  {
    std::lock_guard locked{guard_};
    last = std::move(current_);
    current_ = nullptr;
    generation_.store(0);
    socket_.store(-1);
  }
  if (last)
    last->lose(
        {errc::unavailable, fmt::format("the channel to {} was closed", options_->description)});
  if (loop_.on_thread()) {
    if (last) last->deliver();
    return;
  }
  // What was posted for this channel comes before this, so afterwards nobody is told anything any more.
  support::parker told;
  loop_.post([&told] { told.set(1); });
  told.wait(steady_time::max());
}

void channel::state::send(std::string_view request, unsigned replies, const limits& until,
                          reply_handler& done, connection::pace how) noexcept {
  if (forked()) return done.on_reply(fork_refusal());
  for (;;) {
    const auto on = current();
    if (on && (*on)->send(request, replies, until, done, how)) return;
    if (on) continue;  // lost since current() returned it, and the next current() knows that
    // Not here and now: a handler that tries again would come back deeper and deeper.
    loop_.post([&done, why = on.error()] { done.on_reply(why); });
    return;
  }
}

void channel::state::drop(const error& why) noexcept {
  std::shared_ptr<connection> which;
  {
    std::lock_guard locked{guard_};
    which = current_;
  }
  if (which)
    which->lose({errc::unavailable, fmt::format("the connection to {} was dropped ({})",
                                                options_->description, why.message())});
}

error channel::state::fork_refusal() const {
  return {errc::misconfigured, fmt::format("the connection to {} was opened before fork() and is "
                                           "used in the child; open a new client "
                                           "after fork()",
                                           options_->description)};
}

void channel::state::close_in_child() const noexcept {
  if (const int fd = socket_.load(); fd >= 0) ::close(fd);
}

// ---- The public face -------------------------------------------------------------------------------------------

channel::channel(reactor& on, channel_options options)
    : state_(std::make_shared<state>(on.inside(), std::move(options))) {
  if (state_->options().keep_open) static_cast<void>(state_->current());
}

channel::~channel() {
  if (!state_->forked()) {
    state_->close();
    return;
  }
  state_->close_in_child();
  // Its locks may be held for ever by threads that only the parent has: nothing of it is ever destroyed.
  static_cast<void>(new std::shared_ptr<state>{state_});
}

result<std::uint64_t> channel::exchange(std::string_view request, unsigned replies,
                                        const limits& until, std::string& into) {
  if (state_->forked()) return state_->fork_refusal();
  if (state_->on_reactor()) {
    return error{errc::misconfigured,
                 fmt::format("a blocking call to {} was made on the thread that would have to "
                             "answer it; use send() there",
                             state_->options().description)};
  }
  for (;;) {
    const auto on = state_->current();
    if (!on) return on.error();
    // Nothing: it was lost since current() returned it, and the next current() knows that.
    if (auto answer = (*on)->exchange(request, replies, until, into)) return std::move(*answer);
  }
}

void channel::send(std::string_view request, unsigned replies, const limits& until,
                   reply_handler& done) noexcept {
  state_->send(request, replies, until, done, connection::pace::reactor_sends);
}

void channel::send_now(std::string_view request, unsigned replies, const limits& until,
                       reply_handler& done) noexcept {
  state_->send(request, replies, until, done, connection::pace::caller_sends);
}

std::uint64_t channel::generation() const noexcept { return state_->generation(); }

void channel::drop(const error& why) noexcept {
  if (!state_->forked()) state_->drop(why);
}

}  // namespace holdfast::net
