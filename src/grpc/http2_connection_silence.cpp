// A peer that has vanished without a word looks like a slow one. While something is open and nothing comes in, the
// server is pinged; when it does not answer that either, the connection is given up.
//
// gRPC servers count pings that come too often and drop the client for it. What they allow: one ping after each answer
// they have sent, and else one per `ping_interval` as long as a request is open.
#include "grpc/http2_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast::grpc {

bool http2_connection::may_ping(steady_time now) const {
  if (phase_ != phase::ready || ping_at_) return false;
  if (!last_ping_ || codec_.answer_frames() != answers_at_ping_) return true;
  return codec_.first() != nullptr && now >= *last_ping_ + options_->ping_interval;
}

void http2_connection::ping(steady_time now) {
  codec_.ping();
  ping_at_ = last_ping_ = now;
  answers_at_ping_ = codec_.answer_frames();
  write_soon_ = true;
}

// A call was not answered in time. The server may be slow, or gone.
void http2_connection::suspect(steady_time now) {
  if (phase_ != phase::ready) return;
  if (!suspected_) suspected_ = now;
  if (may_ping(now)) ping(now);
  plan_check(now + half_silence());
}

// When to look again.
steady_time http2_connection::check_silence(steady_time now, wake_list& woken) {
  if (phase_ != phase::ready)
    return codec_.first() == nullptr ? steady_time::max() : now + half_silence();
  if (codec_.first() == nullptr && !suspected_) return steady_time::max();
  auto end = steady_time::max();
  if (ping_at_) end = *ping_at_ + half_silence();
  // With nothing open the server may not allow a ping. To make a new connection is cheaper than to be wrong.
  if (suspected_ && codec_.first() == nullptr)
    end = std::min(end, *suspected_ + options_->longest_silence);
  if (now >= end) {
    fail_all(
        {errc::unavailable,
         fmt::format("{} has sent nothing for {} ms{}, and the connection was given up",
                     description(), net::milliseconds_since(heard_at_),
                     ping_at_ ? ", not even an answer to a ping" : " although answers are due")},
        woken);
    return steady_time::max();
  }
  if (ping_at_) return end;
  const auto due = heard_at_ + half_silence();
  if (now < due) return std::min(end, due);
  if (may_ping(now)) {
    ping(now);
    return now + half_silence();
  }
  return std::min(end, *last_ping_ + options_->ping_interval);
}

// Go's gRPC servers (etcd) measure the line by a ping with nearly every answer, the next one as soon as the last one is
// answered. To answer at once would be a second write per call for us, and one more packet for the server to wake up
// for. So it is done a little later, for all that have come: it may be slow, but must be done.
void http2_connection::answer_pings_soon(steady_time now) {
  constexpr auto delay = std::chrono::milliseconds{10};
  if (!codec_.owes_pings() || std::exchange(pong_planned_, true)) return;
  loop_.at(now + delay, later<http2_connection>([](http2_connection& self) {
             lock locked{self.guard_};
             self.pong_planned_ = false;
             if (self.phase_ != phase::ready) return;
             self.codec_.answer_pings();
             self.write_soon_ = true;
             self.write_owed(locked);
           }));
}

}  // namespace holdfast::grpc
