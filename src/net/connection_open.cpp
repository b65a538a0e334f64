// How a connection comes about: address, look-up, connect, TLS, greeting. All of it on the reactor's thread; other
// threads only queue calls meanwhile, or end it.
#include "net/connection.hpp"

#include "net/reconnector.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <chrono>
#include <utility>

namespace holdfast::net {

using kind = io_result::kind;

void connection::open() noexcept {
  if (is_dead()) return;
  give_up_at_ = std::chrono::steady_clock::now() + settings_->connect_timeout;
  opening_timer_ = loop_.at(give_up_at_, later([](connection& self) { self.out_of_time(); }));
  if (interrupt_ < 0) return fail_to_open(errc::unavailable, "no descriptor is to be had");
  if (!settings_->find_address) {
    where_ = &settings_->where;
    return look_up();
  }
  settings_->find_address([weak = weak_from_this()](result<address> found) {
    if (const auto self = weak.lock()) self->on_address(std::move(found));
  });
}

void connection::on_address(result<address> found) {
  if (is_dead() || where_ != nullptr) return;  // too late, or told twice
  if (!found) {
    // Whatever the provider has met with, nothing was sent for the calls that wait here.
    const auto code = found.error().code();
    const bool stays =
        code == errc::denied || code == errc::misconfigured || code == errc::protocol;
    return fail_to_open(stays ? code : errc::unavailable, found.error().message());
  }
  where_ = &found_address_.emplace(std::move(*found));
  look_up();
}

void connection::look_up() {
  if (const auto known = endpoints_without_lookup(*where_)) return on_endpoints(*known);
  loop_.name_resolver().look_up(where_->host, where_->port,
                                [weak = weak_from_this()](const resolver::answer& found) {
                                  if (const auto self = weak.lock()) self->on_endpoints(found);
                                });
}

bool connection::is_dead() noexcept {
  lock locked{guard_};
  return phase_ == phase::dead;
}

void connection::fail_to_open(errc code, std::string_view why) noexcept {
  lose(unreachable(settings_->description, code, why));
}

void connection::out_of_time() noexcept {
  const auto length =
      std::chrono::round<std::chrono::milliseconds>(settings_->connect_timeout).count();
  const auto what = where_ == nullptr ? "no address within {} ms{}"
                    : io_ && where_->use_tls
                        ? "no TLS connection within {} ms{}; does it speak TLS on this port?"
                        : "no connection within {} ms{}";
  const auto last = last_failure_.empty() ? std::string{} : fmt::format(" ({})", last_failure_);
  fail_to_open(errc::unavailable, fmt::format(fmt::runtime(what), length, last));
}

// ---- Endpoints -------------------------------------------------------------------------------------------------

void connection::on_endpoints(const resolver::answer& found) {
  if (is_dead()) return;
  if (!found) return fail_to_open(found.error().code(), found.error().message());
  endpoints_ = *found;
  try_next_endpoint();
}

void connection::try_next_endpoint() {
  while (next_endpoint_ < endpoints_.size()) {
    const auto& to = endpoints_[next_endpoint_++];
    auto opened = stream::open(*where_, to);
    if (opened) return begin_stream(std::move(*opened));
    note_failure(opened.error().code(), opened.error().message());
  }
  fail_to_open(last_code_, last_failure_.empty() ? "its name has no address" : last_failure_);
}

void connection::note_failure(errc code, std::string_view why) {
  last_code_ = code;
  last_failure_ = fmt::format("{} ({})", why, endpoints_[next_endpoint_ - 1].text);
}

void connection::begin_stream(std::unique_ptr<stream> opened) {
  auto watched = loop_.watch(opened->descriptor(), shared_from_this());
  if (!watched) return fail_to_open(watched.error().code(), watched.error().message());
  watch_ = *watched;
  {
    lock locked{guard_};
    io_ = std::move(opened);
    if (phase_ == phase::dead) {
      // Too late: clean_up() may have run already and found nothing to unwatch.
      loop_.post([self = shared_from_this()] { self->clean_up(); });
      return;
    }
  }
  // An address that swallows packets must leave some time for the next one.
  if (const auto left = endpoints_.size() - next_endpoint_; left > 0) {
    const auto now = std::chrono::steady_clock::now();
    const auto share = (give_up_at_ - now) / static_cast<long>(left + 1);
    endpoint_timer_ = loop_.at(now + share, later([](connection& self) {
                                 self.note_failure(errc::unavailable, "no answer");
                                 self.leave_endpoint();
                                 self.try_next_endpoint();
                               }));
  }
  step();
}

void connection::leave_endpoint() noexcept {
  loop_.cancel(endpoint_timer_);
  std::unique_ptr<stream> unwanted;
  lock locked{guard_};
  unwanted = std::move(io_);
  if (unwanted) loop_.unwatch(unwanted->descriptor(), watch_);
}

void connection::on_event(std::uint32_t events) noexcept {
  phase now{};
  {
    lock locked{guard_};
    now = phase_;
  }
  if (now == phase::opening) step();
  if (now == phase::greeting) greet();
  if (now == phase::ready) on_ready_event(events);
}

void connection::wait_for(io_result::direction wanted) noexcept {
  loop_.rearm(io_->descriptor(), watch_,
              wanted == io_result::direction::write ? EPOLLOUT : EPOLLIN);
}

void connection::step() {
  const auto moved = io_->advance();
  if (moved.what == kind::would_block) return wait_for(moved.wanted);
  if (moved.what == kind::failed) {
    note_failure(moved.code, moved.why);
    leave_endpoint();
    return try_next_endpoint();
  }
  loop_.cancel(endpoint_timer_);
  {
    lock locked{guard_};
    if (phase_ == phase::dead) return;
    phase_ = phase::greeting;
  }
  greet();
}

// ---- Greeting --------------------------------------------------------------------------------------------------

void connection::greet() {
  if (!send_greeting()) return;
  while (!take_greeting()) {
    const auto got = read_some();
    if (got.what == kind::would_block) return wait_for(got.wanted);
    if (got.what == kind::closed)
      return fail_to_open(errc::unavailable, "it closed the connection during the greeting");
    if (got.what == kind::failed) return fail_to_open(got.code, got.why);
  }
}

// True: it is out.
bool connection::send_greeting() {
  if (!greeting_) {
    protocol_events out;
    lock locked{guard_};
    protocol_->take_output(greeting_.emplace(), out);
  }
  const std::string_view words = *greeting_;
  while (greeting_sent_ < words.size()) {
    const auto sent = io_->write(words.substr(greeting_sent_));
    if (sent.what == kind::would_block) {
      wait_for(sent.wanted);
      return false;
    }
    if (sent.what != kind::done) {
      fail_to_open(sent.code, sent.what == kind::closed ? "it closed the connection" : sent.why);
      return false;
    }
    greeting_sent_ += sent.bytes;
  }
  return true;
}

// What has come so far. True: this is over, one way or the other.
bool connection::take_greeting() {
  protocol_->parse(read_buffer_.view());
  protocol_events out;
  wake_list woken;
  {
    lock locked{guard_};
    if (phase_ == phase::dead) return true;
    read_buffer_.consume(protocol_->receive(read_buffer_.view(), out));
    static_cast<void>(out.take_callbacks());  // become_ready() or the end runs them
    apply(out, woken);
  }
  wake(woken);
  if (out.greeted && !out.failure) become_ready();
  return out.greeted || out.failure;
}

void connection::become_ready() {
  loop_.cancel(opening_timer_);
  wake_list woken;
  {
    lock locked{guard_};
    const auto owner = owner_.lock();
    if (phase_ == phase::dead || !owner) return;
    phase_ = phase::ready;
    generation_ = owner->note_accepted(*this, io_->descriptor());
    protocol_->on_up(generation_);
    write_out(locked);
    pass_lead(woken);
  }
  wake(woken);
  deliver();
}

}  // namespace holdfast::net
