#include "grpc/http2_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::grpc {

namespace {

// What a server that takes no requests, or a listener that is not quick, may cost us.
constexpr std::size_t most_queued_frames = 100'000;
constexpr std::size_t most_outgoing = std::size_t{64} << 20U;
constexpr std::size_t most_untold = std::size_t{128} << 20U;

std::string authority(const net::address& where) {
  if (where.is_unix) return "localhost";
  if (where.host.find(':') != std::string::npos)
    return fmt::format("[{}]:{}", where.host, where.port);
  return fmt::format("{}:{}", where.host, where.port);
}

net::address speaking_http2(net::address where) {
  where.tls.protocol = "h2";
  return where;
}

result<reply> outcome(exchange& of) {
  if (of.failure) return std::move(*of.failure);
  return std::move(of.answer);
}

}  // namespace

http2_connection::http2_connection(net::reactor::impl& loop,
                                   std::shared_ptr<const channel_options> options,
                                   const std::shared_ptr<http2_connection_owner>& owner,
                                   std::uint32_t serial)
    : connection(loop,
                 {.where = speaking_http2(options->where),
                  .description = options->description,
                  .connect_timeout = options->connect_timeout,
                  .spin = options->spin},
                 owner),
      options_(std::move(options)),
      owner_(owner),
      codec_({.scheme = options_->where.use_tls ? "https" : "http",
              .authority = authority(options_->where),
              .server = options_->description,
              .largest_message = options_->largest_message},
             *this),
      last_number_(std::uint64_t{serial} << 32U) {}

// ---- Calls -----------------------------------------------------------------------------------------------------

std::optional<result<reply>> http2_connection::call(const request& what, const net::limits& until) {
  const net::counted_call counted;
  blocked_unary self;
  self.what.thread = &self;
  self.what.request = what.message;
  self.what.deadline = until.deadline;
  const auto interrupt = [this, &self] { stop(self); };
  std::optional<std::stop_callback<decltype(interrupt)>>
      on_stop;  // goes before `self`, without the mutex
  if (until.stop.stop_possible()) on_stop.emplace(until.stop, interrupt);

  lock locked{guard_};
  if (phase_ == phase::dead || retired_) return std::nullopt;
  if (auto no = no_room(until)) return std::move(*no);
  if (!begin(self.what, what)) return std::nullopt;
  wait_for_answer(locked, self, until.deadline);
  return outcome(self.what);
}

bool http2_connection::send(const request& what, const net::limits& until, reply_handler& done,
                            writer by) noexcept {
  auto made = std::make_unique<pending_call>();
  made->handler = &done;
  made->urgent = by == writer::reactor;
  made->message = what.message;
  made->request = made->message;
  made->deadline = until.deadline;

  lock locked{guard_};
  if (phase_ == phase::dead || retired_) return false;
  if (auto no = no_room(until)) {
    callbacks_.reply_to(done, std::move(*no));
    post_delivery();
    return true;
  }
  if (!begin(*made, what)) return false;
  auto& mine = *made;
  const auto number = keep(std::move(made));
  if (until.stop.stop_possible()) {
    auto give_up =
        later<http2_connection>([number](http2_connection& self) { self.stop_pending(number); });
    mine.on_stop = std::make_unique<net::stop_watch>(
        until.stop, [&loop = loop_, work = std::move(give_up)] { loop.post(work); });
  }
  plan_check(until.deadline);
  push_out(locked, by == writer::caller);
  return true;
}

std::optional<error> http2_connection::no_room(const net::limits& until) const {
  if (auto no = refusal(until, 0)) return no;
  if (codec_.queued_frames() < most_queued_frames) return std::nullopt;
  return error{errc::unavailable,
               fmt::format("{} takes no requests: {} of them are still to be sent", description(),
                           codec_.queued_frames())};
}

// False: this connection cannot make requests any more.
bool http2_connection::begin(pending_call& what, const request& with) {
  what.since = std::chrono::steady_clock::now();
  std::optional<nanoseconds> timeout;
  if (what.deadline != steady_time::max()) timeout = what.deadline - what.since;
  if (!codec_.begin(what, with.method, with.extra, timeout)) {
    retire();
    return false;
  }
  plan_check(what.since + half_silence());
  return true;
}

channel::stream_id http2_connection::keep(std::unique_ptr<pending_call> what) {
  const auto number = ++last_number_;
  what->number = number;
  if (what->urgent) ++urgent_;
  pending_.emplace(number, std::move(what));
  return number;
}

http2_connection::pending_call* http2_connection::find(std::uint64_t number) noexcept {
  const auto known = pending_.find(number);
  return known == pending_.end() ? nullptr : known->second.get();
}

// ---- Streams ---------------------------------------------------------------------------------------------------

std::optional<channel::stream_id> http2_connection::open_stream(
    const request& what, stream_listener& listener) noexcept {
  auto made = std::make_unique<pending_call>();
  made->is_stream = true;
  made->listener = &listener;
  made->urgent = true;

  lock locked{guard_};
  if (phase_ == phase::dead || retired_) return std::nullopt;
  if (!begin(*made, what)) return std::nullopt;
  const auto number = keep(std::move(made));
  push_out(locked, true);
  if (phase_ == phase::ready && reader_ == reader::none) watch_input();
  return number;
}

bool http2_connection::write(channel::stream_id to, std::string_view message) noexcept {
  lock locked{guard_};
  auto* const which = find(to);
  if (which == nullptr || which->listener == nullptr) return false;
  if (which->outgoing.size() + message.size() > most_outgoing) {
    codec_.cancel(*which);
    which->failure = error{errc::unavailable,
                           fmt::format("{} does not read: {} MiB of messages are still to be sent",
                                       description(), which->outgoing.size() >> 20U)};
    finish(*which, late_);
    post_delivery();
    write_owed(locked);
    return false;
  }
  codec_.append(*which, message);
  push_out(locked, true);
  if (phase_ == phase::ready && reader_ == reader::none) watch_input();
  return true;
}

void http2_connection::cancel(channel::stream_id number) noexcept {
  lock locked{guard_};
  auto* const which = find(number);
  if (which == nullptr || which->listener == nullptr) return;
  codec_.cancel(*which);
  which->failure =
      error{errc::cancelled, fmt::format("the stream from {} was cancelled", description())};
  finish(*which, late_);
  post_delivery();
  write_soon_ = true;
  write_owed(locked);
}

// ---- What the codec finds out --------------------------------------------------------------------------------

result<bool> http2_connection::greeted() {
  lock locked{guard_};
  const auto bytes = read_buffer_.view();
  if (!bytes.empty()) {
    const auto wrong = codec_.feed(bytes);
    read_buffer_.consume(bytes.size());
    if (wrong) return *wrong;
  }
  heard_at_ = std::chrono::steady_clock::now();
  return codec_.is_greeted();
}

void http2_connection::take_output(std::string& chunk) { codec_.take_output(chunk); }

std::optional<error> http2_connection::distribute(wake_list& woken) {
  heard_at_ = std::chrono::steady_clock::now();
  ping_at_.reset();
  suspected_.reset();
  const auto bytes = read_buffer_.view();
  woken_ = &woken;
  auto wrong = codec_.feed(bytes);
  woken_ = nullptr;
  read_buffer_.consume(bytes.size());
  if (wrong) return wrong;
  if (codec_.is_going_away()) retire();
  answer_pings_soon(heard_at_);
  write_soon_ = codec_.has_output();
  if (callbacks_.bytes() > most_untold)
    return error{errc::unavailable,
                 fmt::format("{} sends faster than its messages can be taken in", description())};
  return std::nullopt;
}

void http2_connection::on_message(exchange& of, std::string_view message) {
  callbacks_.message(*static_cast<pending_call&>(of).listener, message);
  if (reader_ == reader::caller) post_delivery();
}

void http2_connection::on_finished(exchange& which) {
  if (woken_ != nullptr) return finish(static_cast<pending_call&>(which), *woken_);
  // Found by a writer: nghttp2 could not send it. That is rare, so the reactor may do the waking.
  finish(static_cast<pending_call&>(which), late_);
  interrupt_leader();
  post_delivery();
}

// Wakes the waiting thread, or leaves a callback for the reactor. A handler's or listener's `which` is gone then.
void http2_connection::finish(pending_call& which, wake_list& woken) {
  if (which.thread != nullptr) {
    complete(*which.thread, woken);
  } else {
    const bool urgent = which.urgent;
    if (which.handler != nullptr) callbacks_.reply_to(*which.handler, outcome(which));
    if (which.listener != nullptr) callbacks_.end(*which.listener, outcome(which));
    if (urgent) --urgent_;
    pending_.erase(which.number);
    // A handler's continuation never runs on another caller's thread.
    if (reader_ == reader::caller && urgent) post_delivery();
    if (reader_ == reader::caller && !urgent) plan_tick();
  }
  end_if_done();
}

void http2_connection::run_callbacks(lock& locked) {
  callback_queue batch;
  std::swap(batch, running_);  // for its memory
  while (!callbacks_.empty() || !late_.empty()) {
    std::swap(batch, callbacks_);
    wake_list woken;
    std::swap(woken, late_);
    locked.unlock();
    wake(woken);
    batch.run();
    batch.clear();
    locked.lock();
  }
  std::swap(batch, running_);
}

// ---- Giving up -------------------------------------------------------------------------------------------------

void http2_connection::give_up(net::blocked_call& self) {
  auto& mine = static_cast<blocked_unary&>(self).what;
  mine.failure = given_up(mine, self.stopped);
  end_if_done();
}

// Says CANCEL to the server. It may have executed the request all the same, unless it never had all of it.
error http2_connection::given_up(pending_call& which, bool stopped) {
  codec_.cancel(which);
  write_soon_ = true;
  const auto& server = description();
  if (!which.left || phase_ != phase::ready) {
    return {errc::unavailable,
            stopped ? fmt::format("the call to {} was cancelled before it was sent", server)
                    : fmt::format("the request could not be sent to {} within {} ms", server,
                                  net::milliseconds_since(which.since))};
  }
  if (!stopped) suspect(std::chrono::steady_clock::now());
  return {errc::outcome_unknown,
          stopped ? fmt::format("the call to {} was cancelled before it was answered", server)
                  : fmt::format("{} did not answer within {} ms", server,
                                net::milliseconds_since(which.since))};
}

void http2_connection::stop_pending(std::uint64_t number) noexcept {
  {
    lock locked{guard_};
    auto* const which = find(number);
    if (which == nullptr) return;
    which->failure = given_up(*which, true);
    finish(*which, late_);
    write_owed(locked);
  }
  deliver();
}

steady_time http2_connection::check(steady_time now, wake_list& woken) {
  auto next = steady_time::max();
  for (auto at = pending_.begin(); at != pending_.end();) {
    auto& which = *(at++)->second;
    if (which.deadline <= now) {
      which.failure = given_up(which, false);
      finish(which, woken);
    } else {
      next = std::min(next, which.deadline);
    }
  }
  return std::min(next, check_silence(now, woken));
}

// ---- The end ---------------------------------------------------------------------------------------------------

void http2_connection::fail_calls(const error& why, bool was_ready, wake_list& woken) {
  while (auto* const open = codec_.first()) {
    auto& which = static_cast<pending_call&>(*open);
    codec_.cancel(which);
    if (!was_ready || which.listener != nullptr) {
      which.failure = why;
    } else if (!which.left) {
      which.failure =
          error{errc::unavailable, fmt::format("{} before the request was sent", why.message())};
    } else {
      which.failure =
          error{errc::outcome_unknown, fmt::format("{} before it answered", why.message())};
    }
    finish(which, woken);
  }
}

// New calls go to another connection; this one ends when the last of the old ones has its answer.
void http2_connection::retire() {
  if (std::exchange(retired_, true)) return;
  if (const auto owner = owner_.lock()) owner->retired(*this);
  end_if_done();
}

void http2_connection::end_if_done() {
  if (!retired_ || phase_ == phase::dead || codec_.first() != nullptr) return;
  loop_.post(later<http2_connection>([](http2_connection& self) {
    self.lose({errc::unavailable, fmt::format("{} wanted to go", self.description())});
  }));
}

}  // namespace holdfast::grpc
