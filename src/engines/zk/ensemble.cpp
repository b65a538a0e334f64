#include "engines/zk/ensemble.hpp"

#include "engines/zk/errors.hpp"
#include "support/parker.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;

std::size_t random_below(std::size_t count) {
  std::uint64_t out = 0;
  static_cast<void>(!getrandom(&out, sizeof out, 0));
  return static_cast<std::size_t>(out % count);
}

// The answer to the greeting has no header: its first number is the version of the protocol, which is not that of an
// event.
class framing final : public net::framing {
 public:
  framing(std::atomic<std::uint64_t>& events, std::atomic<std::int64_t>& newest)
      : events_(events), newest_(newest) {}

 private:
  result<frame> next(std::string_view bytes) override {
    const auto found = jute::next_frame(bytes);
    if (!found) return found.error();
    const bool is_event = found->length != 0 && found->xid == jute::event_xid;
    if (is_event) events_.fetch_add(1, std::memory_order_release);
    if (found->length != 0 && !std::exchange(is_first_, false)) note_zxid(bytes);
    return frame{.length = found->length, .push = is_event};
  }
  // What has been seen is noted before anybody is told: no later connection may go to a server that is behind it.
  void note_zxid(std::string_view bytes) {
    const auto header = jute::open_reply(jute::take_frame(bytes));
    if (!header) return;
    auto known = newest_.load(std::memory_order_relaxed);
    while (header->zxid > known && !newest_.compare_exchange_weak(known, header->zxid)) {
    }
  }

  std::atomic<std::uint64_t>& events_;
  std::atomic<std::int64_t>& newest_;
  bool is_first_ = true;
};

}  // namespace

// ---- beginning

ensemble::ensemble(const settings& how, const class clock& time, ensemble_listener& listener)
    : how_(how),
      clock_(time),
      listener_(listener),
      top_(how.root.empty() ? "/" : how.root),
      next_server_(random_below(how.where.size())) {}

result<std::unique_ptr<ensemble>> ensemble::start(const settings& how, const class clock& time,
                                                  ensemble_listener& listener) {
  auto reactor = net::reactor::start();
  if (!reactor) return std::move(reactor).error();
  std::unique_ptr<ensemble> self{new ensemble{how, time, listener}};
  self->reactor_ = std::move(*reactor);
  return self;
}

void ensemble::connect() {
  // On the thread that will hear of its connections, so that it does not before the channel is known.
  support::parker made;
  reactor_->post([&] {
    channel_ = std::make_unique<net::channel>(*reactor_, options());
    made.set(1);
  });
  made.wait(steady_time::max());
}

net::channel_options ensemble::options() {
  net::channel_options out;
  out.find_address = [this](const net::address_found& found) { find_address(found); };
  out.description = how_.url;
  out.make_framing = [this] { return std::make_unique<framing>(events_, newest_zxid_); };
  out.make_greeting = [this] { return greeting(); };
  out.greeting_replies = how_.user.empty() ? 1 : 2;
  out.greeted = [this](std::string_view frames) { return greeted(frames); };
  out.greeting_is_refused = [](std::string_view frames) {
    const auto said = jute::read_connected(jute::take_frame(frames));
    return said && said->timeout_ms <= 0;  // the session is over, and the login is not looked at
  };
  out.listener = this;
  out.connect_timeout = std::clamp<nanoseconds>(how_.session / 4, 300ms, 2s);
  out.keep_open = true;
  return out;
}

// One after the other, from a random one on: so the clients are spread, and a server that does not take us is left.
void ensemble::find_address(const net::address_found& found) {
  std::size_t which = 0;
  {
    const std::lock_guard lock{guard_};
    which = next_server_++ % how_.where.size();
  }
  ++attempts_;
  found(how_.where[which]);
}

// A new session begins with what any server knows; an old one goes on where no server is behind what it has seen: that
// one closes the connection without an answer. After an ensemble was set up anew, or restored from a backup, all are
// behind, for good. So when no server has taken us for long after all that rested on the session is over, every second
// time a probe says that we have seen nothing: then a server answers, if only that the session is over.
std::string ensemble::greeting() {
  const std::lock_guard lock{guard_};
  const bool is_new = session_.id == 0;
  zxid_before_ = newest_zxid_.load();
  is_probe_ = !is_new && !is_probe_ && clock_.now() - down_since_ > 2 * session_.length;
  jute::connecting hello;
  hello.last_zxid = is_new || is_probe_ ? 0 : zxid_before_;
  hello.timeout_ms = static_cast<std::int32_t>(how_.session.count());
  hello.session = session_.id;
  hello.password = is_new ? std::string_view{} : std::string_view{password_};
  std::string out;
  jute::append_connect(out, hello);
  if (!how_.user.empty()) jute::append_auth(out, "digest", how_.user + ":" + how_.password);
  return out;
}

result<void> ensemble::greeted(std::string_view frames) {
  const auto said = jute::read_connected(jute::take_frame(frames));
  if (!said) return unexpected_answer({}, how_.url);
  if (said->timeout_ms <= 0 || said->session == 0) {
    session_is_over("the ensemble has ended it");
    return error{errc::unavailable, fmt::format("{}: the session has expired", how_.url)};
  }
  if (said->read_only)
    return error{errc::unavailable,
                 fmt::format("{}: the server is cut off from the others", how_.url)};
  if (!how_.user.empty()) {
    const auto login = jute::open_reply(jute::take_frame(frames));
    if (!login) return unexpected_answer({}, how_.url);
    if (login->err != jute::code::ok) return refusal(jute::code::auth_failed, {}, how_.url);
  }
  if (is_of_another(*said)) session_is_over("a server has given us another one");
  if (lives_behind(*said))
    return error{errc::unavailable,
                 fmt::format("{}: the server is behind what we have seen", how_.url)};
  take_session(*said);
  return {};
}

bool ensemble::is_of_another(const jute::connected& said) const {
  const std::lock_guard lock{guard_};
  return session_.id != 0 && said.session != session_.id;
}

// The answer to a probe says that the session lives. A server that is only late lets it go on soon; else the ensemble
// was restored, and the session with it.
bool ensemble::lives_behind(const jute::connected& said) {
  bool is_for_good = false;
  {
    const std::lock_guard lock{guard_};
    if (!is_probe_ || said.session != session_.id) return false;
    if (!behind_since_) behind_since_ = clock_.now();
    is_for_good = clock_.now() - *behind_since_ > session_.length;
  }
  if (is_for_good) session_is_over("the ensemble is behind what it has told us, for good");
  return true;
}

void ensemble::take_session(const jute::connected& said) {
  const std::lock_guard lock{guard_};
  is_resumed_ = said.session == session_.id;
  password_ = said.password;
  behind_since_.reset();
  const nanoseconds length = std::chrono::milliseconds{said.timeout_ms};
  if (is_resumed_) {
    // Bounds differ between servers. What was proven for a shorter time is not believed for longer: see proof().
    const auto counts = [&](nanoseconds one) {
      return believed_time(std::min(one, first_length_));
    };
    session_.proven -= std::max(nanoseconds::zero(), counts(length) - counts(session_.length));
    session_.length = length;
    return;
  }
  if (first_length_ == nanoseconds::zero()) first_length_ = length;
  session_ = {++sessions_, said.session, length, steady_time{}};
  down_since_ = clock_.now();
  number_.store(session_.number, std::memory_order_release);
}

// On the reactor's thread, perhaps with a lock of the connection: what follows from it happens later.
void ensemble::session_is_over(std::string_view why) {
  session_view gone;
  {
    const std::lock_guard lock{guard_};
    if (session_.id == 0) return;
    gone = session_;
    session_.id = 0;
    password_.clear();
    newest_zxid_ = 0;  // the next one may be another world's
  }
  reactor_->post([this, gone, why = std::string{why}] { listener_.on_session_over(gone, why); });
}

session_view ensemble::current() const {
  const std::lock_guard lock{guard_};
  return session_.id == 0 ? session_view{} : session_;
}

std::uint64_t ensemble::number_of(std::int64_t session) const {
  const std::lock_guard lock{guard_};
  return session != 0 && session == session_.id ? session_.number : 0;
}

// ---- of the reactor's thread

void ensemble::on_push(std::string_view frame) noexcept {
  const auto header = jute::open_reply(jute::take_frame(frame));
  const auto what = header ? jute::read_event(header->rest) : result<jute::event>{header.error()};
  if (what && !what->path.empty()) listener_.on_event(*what);
  told_events_.fetch_add(1, std::memory_order_release);
}

void ensemble::on_up(std::uint64_t) noexcept {
  bool is_resumed = false;
  std::int64_t since = 0;
  {
    const std::lock_guard lock{guard_};
    is_resumed = is_resumed_;
    since = zxid_before_;
  }
  is_up_ = true;
  heard_ = channel_->received();
  heard_at_ = std::chrono::steady_clock::now();
  sent_at_ = heard_at_;  // the greeting
  pinged_ = has_answered_ = false;
  plan_tick(quiet_time() / 2);
  listener_.on_connected(is_resumed, since);
}

// What was seen and not told by now never will be.
void ensemble::on_down(const error&) noexcept {
  if (std::exchange(is_up_, false)) {
    const std::lock_guard lock{guard_};
    down_since_ = clock_.now();
  }
  told_events_.store(events_.load());
}

// So long a server may be mute before it is left for another. Where there is no other, it is rather waited for; but not
// over a connection that has never answered: a server that took our session in the moment of its end drops all that we
// ask, and tells us when we come again.
nanoseconds ensemble::patience() const {
  const auto session = current();
  const auto length = session.number == 0 ? nanoseconds{how_.session} : session.length;
  return how_.where.size() == 1 && has_answered_
             ? length / 2
             : std::clamp<nanoseconds>(length / 4, 150ms, 2500ms);
}

// After that much silence of ours the server is sent something, see ensemble.hpp: so there is time left for a late
// timer. After that much of its own it is asked for an answer.
nanoseconds ensemble::quiet_time() const {
  const auto session = current();
  const auto length = session.number == 0 ? nanoseconds{how_.session} : session.length;
  return std::clamp<nanoseconds>(length / 12, 20ms, 1s);
}

void ensemble::plan_tick(nanoseconds after) {
  if (timer_) reactor_->cancel(*timer_);
  timer_ = reactor_->at(std::chrono::steady_clock::now() + after, [this] {
    timer_.reset();
    tick();
  });
}

// Is the server there? When nothing was heard for a while it is asked; when it does not answer it is left. The same
// question keeps the session of a client that asks for nothing else, and is no later because answers still come in.
void ensemble::tick() {
  if (!is_up_ || is_stopping()) return;
  const auto time = std::chrono::steady_clock::now();
  if (const auto heard = channel_->received(); heard != heard_) {
    heard_ = heard;
    heard_at_ = time;
    pinged_ = false;
    has_answered_ = true;
  }
  const auto limit = patience();
  if (pinged_ && time - heard_at_ >= limit) {
    channel_->drop({errc::unavailable, "the server has not answered for a while"});
    return;
  }
  const auto quiet = quiet_time();
  const auto ask_at =
      std::min(sent_at_.load(std::memory_order_relaxed), std::max(heard_at_, pinged_at_)) + quiet;
  if (time < ask_at) return plan_tick(std::min(ask_at - time, quiet / 2));
  pinged_ = true;
  pinged_at_ = time;
  ask_in_background(std::move(batch{}.ping()), 10s, [](const result<answers>&) {});
  plan_tick(quiet / 2);
}

}  // namespace holdfast::engines::zk
