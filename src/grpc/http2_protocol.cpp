#include "grpc/http2_protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::grpc {

namespace {

using urgency = net::protocol_events::urgency;

// What a server that takes no requests, or a listener that is not quick, may cost us.
constexpr std::size_t most_queued_frames = 100'000;
constexpr std::size_t most_outgoing = std::size_t{64} << 20U;
constexpr std::size_t most_undelivered = std::size_t{128} << 20U;

std::string authority(const net::address& where) {
  if (where.is_unix) return "localhost";
  if (where.host.find(':') != std::string::npos)
    return fmt::format("[{}]:{}", where.host, where.port);
  return fmt::format("{}:{}", where.host, where.port);
}

result<reply> outcome(exchange& of) {
  if (of.failure) return std::move(*of.failure);
  return std::move(of.answer);
}

}  // namespace

http2_protocol::http2_protocol(std::shared_ptr<const channel_options> options, std::uint32_t serial)
    : options_(std::move(options)),
      codec_({.scheme = options_->where.use_tls ? "https" : "http",
              .authority = authority(options_->where),
              .server = options_->description,
              .largest_message = options_->largest_message},
             *this),
      last_number_(std::uint64_t{serial} << 32U) {}

// ---- Calls -----------------------------------------------------------------------------------------------------

bool http2_protocol::begin(const request& what, blocked_unary& self, net::protocol_events& out) {
  if (auto no = no_room(what)) {
    self.what.failure = std::move(*no);
    out.done(self);
    return true;
  }
  self.what.thread = &self;
  self.what.request = what.message;
  self.what.deadline = what.until.deadline;
  return begin(self.what, what, out);
}

bool http2_protocol::begin(const request& what, std::unique_ptr<pending_call>& made,
                           net::protocol_events& out) {
  if (made->handler != nullptr) {
    if (auto no = no_room(what)) {
      callbacks_.reply_to(*made->handler, std::move(*no));
      out.callbacks(urgency::now);
      return true;
    }
  }
  made->deadline = what.until.deadline;
  if (!begin(*made, what, out)) return false;
  out.check_by(what.until.deadline);
  made->number = ++last_number_;
  if (made->urgent) ++urgent_;
  pending_.emplace(made->number, std::move(made));
  return true;
}

std::optional<error> http2_protocol::no_room(const request& what) const {
  if (auto no = net::refusal(server(), what.until, what.backlog)) return no;
  if (codec_.queued_frames() < most_queued_frames) return std::nullopt;
  return error{errc::unavailable,
               fmt::format("{} takes no requests: {} of them are still to be sent", server(),
                           codec_.queued_frames())};
}

bool http2_protocol::begin(pending_call& what, const request& with, net::protocol_events& out) {
  what.since = std::chrono::steady_clock::now();
  std::optional<nanoseconds> timeout;
  if (what.deadline != steady_time::max()) timeout = what.deadline - what.since;
  if (!codec_.begin(what, with.method, with.extra, timeout)) {
    retire(out);
    return false;
  }
  out.check_by(what.since + half_silence());
  return true;
}

void http2_protocol::keep(channel::stream_id number, std::unique_ptr<net::stop_watch> stop) {
  if (auto* const which = find(number)) which->on_stop = std::move(stop);
}

pending_call* http2_protocol::find(std::uint64_t number) noexcept {
  const auto known = pending_.find(number);
  return known == pending_.end() ? nullptr : known->second.get();
}

// ---- Streams ---------------------------------------------------------------------------------------------------

bool http2_protocol::write(channel::stream_id to, std::string_view message,
                           net::protocol_events& out) {
  auto* const which = find(to);
  if (which == nullptr || which->listener == nullptr) return false;
  out.has_output = true;
  if (which->outgoing.size() + message.size() > most_outgoing) {
    codec_.cancel(*which);
    which->failure = error{errc::unavailable,
                           fmt::format("{} does not read: {} MiB of messages are still to be sent",
                                       server(), which->outgoing.size() >> 20U)};
    finish(*which, out);
    return false;
  }
  codec_.append(*which, message);
  return true;
}

void http2_protocol::cancel(channel::stream_id number, net::protocol_events& out) {
  auto* const which = find(number);
  if (which == nullptr || which->listener == nullptr) return;
  codec_.cancel(*which);
  which->failure =
      error{errc::cancelled, fmt::format("the stream from {} was cancelled", server())};
  finish(*which, out);
  out.has_output = true;
}

// ---- Bytes -----------------------------------------------------------------------------------------------------

void http2_protocol::take_output(std::string& chunk, net::protocol_events& out) {
  if (!std::exchange(greeting_taken_, true)) {
    chunk = codec_.preface();
    return;
  }
  events_ = &out;
  codec_.take_output(chunk);
  events_ = nullptr;
}

std::size_t http2_protocol::receive(std::string_view bytes, net::protocol_events& out) {
  heard_at_ = std::chrono::steady_clock::now();
  ping_at_.reset();
  suspected_.reset();
  if (!bytes.empty()) {
    events_ = &out;
    if (auto wrong = codec_.feed(bytes)) out.failure = std::move(wrong);
    events_ = nullptr;
  }
  out.greeted = codec_.is_greeted();
  if (out.failure || !is_up_) return bytes.size();
  if (codec_.is_going_away()) retire(out);
  answer_pings_soon(heard_at_, out);
  out.has_output = codec_.has_output();
  if (callbacks_.bytes() > most_undelivered)
    out.failure = error{errc::unavailable,
                        fmt::format("{} sends faster than its messages can be taken in", server())};
  return bytes.size();
}

void http2_protocol::on_message(exchange& of, std::string_view message) {
  callbacks_.message(*static_cast<pending_call&>(of).listener, message);
  events_->callbacks(urgency::now);
}

// A thread goes on; a handler or listener gets a callback, and `which` is gone then.
void http2_protocol::finish(pending_call& which, net::protocol_events& out) {
  if (which.thread != nullptr) {
    out.done(*which.thread);
  } else {
    if (which.handler != nullptr) callbacks_.reply_to(*which.handler, outcome(which));
    if (which.listener != nullptr) callbacks_.end(*which.listener, outcome(which));
    out.callbacks(which.urgent ? urgency::now : urgency::soon);
    if (which.urgent) --urgent_;
    pending_.erase(which.number);
  }
  end_if_done(out);
}

void http2_protocol::on_finished(exchange& which) {
  finish(static_cast<pending_call&>(which), *events_);
}

void http2_protocol::run_callbacks(std::unique_lock<std::mutex>& locked) noexcept {
  callback_queue batch;
  std::swap(batch, running_);
  while (!callbacks_.empty()) {
    std::swap(batch, callbacks_);
    locked.unlock();
    batch.run();
    batch.clear();
    locked.lock();
  }
  std::swap(batch, running_);
}

// ---- Giving up -------------------------------------------------------------------------------------------------

void http2_protocol::abandon(net::blocked_call& call, net::protocol_events& out) {
  auto& mine = static_cast<blocked_unary&>(call).what;
  mine.failure = given_up(mine, call.stopped, out);
  end_if_done(out);
}

// Says CANCEL to the server. It may have executed the request all the same, unless it never had all of it.
error http2_protocol::given_up(pending_call& which, bool stopped, net::protocol_events& out) {
  codec_.cancel(which);
  out.has_output = true;
  // What has left the codec may be sent by the next writer, also if the greeting is not accepted yet.
  if (!which.left) {
    return {errc::unavailable,
            stopped ? fmt::format("the call to {} was cancelled before it was sent", server())
                    : fmt::format("the request could not be sent to {} within {} ms", server(),
                                  net::milliseconds_since(which.since))};
  }
  if (!stopped) suspect(std::chrono::steady_clock::now(), out);
  return {errc::outcome_unknown,
          stopped ? fmt::format("the call to {} was cancelled before it was answered", server())
                  : fmt::format("{} did not answer within {} ms", server(),
                                net::milliseconds_since(which.since))};
}

void http2_protocol::stop(channel::stream_id number, net::protocol_events& out) noexcept {
  auto* const which = find(number);
  if (which == nullptr) return;
  which->failure = given_up(*which, true, out);
  finish(*which, out);
}

void http2_protocol::on_time(steady_time now, net::protocol_events& out) {
  for (auto at = pending_.begin(); at != pending_.end();) {
    auto& which = *(at++)->second;
    if (which.deadline <= now) {
      which.failure = given_up(which, false, out);
      finish(which, out);
    } else {
      out.check_by(which.deadline);
    }
  }
  check_silence(now, out);
  answer_pings(now, out);
}

// ---- The end ---------------------------------------------------------------------------------------------------

void http2_protocol::on_lost(const error& why, bool was_up, net::protocol_events& out) {
  while (auto* const open = codec_.first()) {
    auto& which = static_cast<pending_call&>(*open);
    codec_.cancel(which);
    if (!was_up || which.listener != nullptr) {
      which.failure = why;
    } else if (!which.left) {
      which.failure =
          error{errc::unavailable, fmt::format("{} before the request was sent", why.message())};
    } else {
      which.failure =
          error{errc::outcome_unknown, fmt::format("{} before it answered", why.message())};
    }
    finish(which, out);
  }
}

// New calls go to another connection; this one ends when the last of the old ones has its answer.
void http2_protocol::retire(net::protocol_events& out) {
  out.is_retired = is_retired_ = true;
  end_if_done(out);
}

void http2_protocol::end_if_done(net::protocol_events& out) {
  if (!is_retired_ || codec_.first() != nullptr || out.failure) return;
  out.failure = error{errc::unavailable, fmt::format("{} wanted to go", server())};
}

}  // namespace holdfast::grpc
