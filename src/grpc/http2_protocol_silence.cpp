// A peer that has vanished without a word looks like a slow one. While something is open and nothing comes in, the
// server is pinged; when it does not answer that either, the connection is given up.
//
// gRPC servers count pings that come too often and drop the client for it. What they allow: one ping after each answer
// they have sent, and else one per `ping_interval` as long as a request is open.
#include "grpc/http2_protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast::grpc {

bool http2_protocol::may_ping(steady_time now) const {
  if (!is_up_ || ping_at_) return false;
  if (!last_ping_ || codec_.answer_frames() != answers_at_ping_) return true;
  return codec_.first() != nullptr && now >= *last_ping_ + options_->ping_interval;
}

void http2_protocol::ping(steady_time now, net::protocol_events& out) {
  codec_.ping();
  ping_at_ = last_ping_ = now;
  answers_at_ping_ = codec_.answer_frames();
  out.has_output = true;
}

// A call was not answered in time. The server may be slow, or gone.
void http2_protocol::suspect(steady_time now, net::protocol_events& out) {
  if (!suspected_) suspected_ = now;
  if (may_ping(now)) ping(now, out);
  out.check_by(now + half_silence());
}

void http2_protocol::check_silence(steady_time now, net::protocol_events& out) {
  if (!is_up_) {
    if (codec_.first() != nullptr) out.check_by(now + half_silence());
    return;
  }
  if (codec_.first() == nullptr && !suspected_) return;
  auto end = steady_time::max();
  if (ping_at_) end = *ping_at_ + half_silence();
  // With nothing open the server may not allow a ping. To make a new connection is cheaper than to be wrong.
  if (suspected_ && codec_.first() == nullptr)
    end = std::min(end, *suspected_ + options_->longest_silence);
  if (now >= end) {
    out.failure = error{
        errc::unavailable,
        fmt::format("{} has sent nothing for {} ms{}, and the connection was given up", server(),
                    net::milliseconds_since(heard_at_),
                    ping_at_ ? ", not even an answer to a ping" : " although answers are due")};
    return;
  }
  out.check_by(end);
  if (ping_at_) return;
  if (const auto due = heard_at_ + half_silence(); now < due) return out.check_by(due);
  if (may_ping(now)) {
    ping(now, out);
    out.check_by(now + half_silence());
  } else if (codec_.first() != nullptr) {
    out.check_by(*last_ping_ + options_->ping_interval);
  }  // else there is nothing to ping for, and the end is planned already
}

// Go's gRPC servers (etcd) measure the line by a ping with nearly every answer, the next one as soon as the last one is
// answered. To answer at once would be a second write per call for us, and one more packet for the server to wake up
// for. So it is done a little later, for all that have come: it may be slow, but must be done.
void http2_protocol::answer_pings_soon(steady_time now, net::protocol_events& out) {
  constexpr auto delay = std::chrono::milliseconds{10};
  if (!codec_.owes_pings() || pongs_at_) return;
  pongs_at_ = now + delay;
  out.check_by(*pongs_at_);
}

void http2_protocol::answer_pings(steady_time now, net::protocol_events& out) {
  if (!pongs_at_) return;
  if (now < *pongs_at_) return out.check_by(*pongs_at_);
  pongs_at_.reset();
  codec_.answer_pings();
  out.has_output = true;
}

}  // namespace holdfast::grpc
