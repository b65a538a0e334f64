// What the server says, and what it means.
#include "grpc/codec.hpp"

#include "grpc/octets.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <utility>

namespace holdfast::grpc {

namespace {

constexpr std::size_t most_pings = 1000;

}  // namespace

// ---- Answers ---------------------------------------------------------------------------------------------------

std::optional<error> codec::feed(std::string_view bytes) {
  drained_ = false;
  nghttp2_error_.clear();
  const auto taken = nghttp2_session_mem_recv(inner_.get(), raw(bytes), bytes.size());
  if (taken < 0) {
    return broken(nghttp2_error_.empty() ? nghttp2_strerror(static_cast<int>(taken))
                                         : nghttp2_error_);
  }
  if (pings_.size() >= most_pings) return broken("a flood of pings");
  // A rule that was broken shows when nghttp2 has said so: GOAWAY, and no more reading.
  if (nghttp2_session_want_write(inner_.get()) != 0) drain(ready_);
  if (!over_ && nghttp2_session_want_read(inner_.get()) != 0) return std::nullopt;
  // No more reading: one side has said that this is the end.
  if (going_away_ && !over_)
    return error{errc::unavailable,
                 fmt::format("{} closed the connection ({})", options_.server, goaway_reason_)};
  return broken(nghttp2_error_.empty() ? "it broke a rule of the protocol" : nghttp2_error_);
}

error codec::broken(std::string_view why) const {
  return {errc::protocol, fmt::format("{} sent what is not HTTP/2 ({})", options_.server, why)};
}

void codec::take_header(exchange& of, std::string_view name, std::string_view value) {
  of.header_bytes += name.size() + value.size() + 32;
  if (of.header_bytes > most_header_bytes) {
    return reject(of, {errc::protocol, fmt::format("{} sent more than {} KiB of header fields",
                                                   options_.server, most_header_bytes >> 10U)});
  }
  const auto number = [value] {
    unsigned out = 0;
    const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), out);
    return wrong == std::errc{} && end == value.data() + value.size() ? out : 999U;
  };
  if (name == ":status") {
    of.http_status = number();
  } else if (name == "content-type") {
    of.is_grpc = value.starts_with("application/grpc");
    if (!of.is_grpc) of.content_type = value.substr(0, 80);
  } else if (name == "grpc-status") {
    const auto code = number();
    of.answer.status = code <= 16 ? static_cast<status>(code) : status::unknown;
    of.has_status = true;
  } else if (name == "grpc-message") {
    of.answer.message = decode_status_text(value);
  }
}

void codec::take_data(exchange& of, std::string_view bytes) {
  if (of.http_status != 200 || !of.is_grpc) return;  // an error page of another kind of server
  while (!bytes.empty()) {
    const auto whole = of.reader.feed(bytes, options_.largest_message);
    if (!whole)
      return reject(
          of, {whole.error().code(),
               fmt::format("{} sent a bad answer: {}", options_.server, whole.error().message())});
    if (!*whole) return;
    ++of.messages;
    if (of.is_stream) {
      sink_.on_message(of, of.reader.message());
    } else if (of.messages == 1) {
      of.answer.body = of.reader.release();
    }
  }
}

void codec::take_frame(const nghttp2_frame& frame) {
  switch (frame.hd.type) {
    case NGHTTP2_SETTINGS:
      greeted_ = true;
      break;
    case NGHTTP2_PING:
      if ((frame.hd.flags & NGHTTP2_FLAG_ACK) == 0 && pings_.size() < most_pings)
        std::memcpy(pings_.emplace_back().data(), frame.ping.opaque_data, 8);
      break;
    case NGHTTP2_GOAWAY: {
      const auto why = view(frame.goaway.opaque_data, frame.goaway.opaque_data_len);
      going_away_ = true;
      goaway_reason_ = fmt::format("GOAWAY, {}", nghttp2_http2_strerror(frame.goaway.error_code));
      if (!why.empty()) goaway_reason_ += ", " + support::quoted(why);
      break;
    }
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
      ++answer_frames_;
      if ((frame.hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) break;
      if (auto* const which = find(frame.hd.stream_id)) {
        judge(*which);
        // The server has ended it before we have: the rest has no reader.
        if (!which->left)
          nghttp2_submit_rst_stream(inner_.get(), NGHTTP2_FLAG_NONE, which->id, NGHTTP2_NO_ERROR);
        finish(*which);
      }
      break;
    default:
      break;
  }
}

void codec::judge(exchange& which) const {
  const auto wrong = [&](std::string why) {
    which.failure = error{errc::protocol, fmt::format("{} {}", options_.server, why)};
  };
  if (!which.has_status) {
    if (which.http_status != 200)
      return wrong(fmt::format("answered with the HTTP status {}: that is not a gRPC server",
                               which.http_status));
    if (!which.is_grpc)
      return wrong(fmt::format("answered with the content type {}: that is not a gRPC server",
                               support::quoted(which.content_type)));
    return wrong("ended its answer without a status");
  }
  if (!which.answer.ok()) {
    which.answer.body.clear();
    return;
  }
  if (which.reader.is_partial()) return wrong("ended its answer in the middle of a message");
  if (!which.is_stream && which.messages != 1)
    wrong(fmt::format("answered with {} messages where one is due", which.messages));
}

// The stream was closed before its answer was complete.
void codec::take_end(exchange& of, std::uint32_t code) {
  const auto& server = options_.server;
  if (code == NGHTTP2_REFUSED_STREAM) {
    return fail(
        of,
        {errc::unavailable,
         going_away_ ? fmt::format("{} did not process the request ({})", server, goaway_reason_)
                     : fmt::format("{} refused the request without processing it", server)});
  }
  fail(of, {of.left || of.is_stream ? errc::outcome_unknown : errc::unavailable,
            fmt::format("{} broke the request off ({})", server, nghttp2_http2_strerror(code))});
}

// ---- Which are open --------------------------------------------------------------------------------------------

exchange* codec::find(std::int32_t id) const noexcept {
  return static_cast<exchange*>(nghttp2_session_get_stream_user_data(inner_.get(), id));
}

void codec::link(exchange& what) noexcept {
  what.previous = nullptr;
  what.next = first_;
  if (first_ != nullptr) first_->previous = &what;
  first_ = &what;
}

void codec::unlink(exchange& what) noexcept {
  if (what.next != nullptr) what.next->previous = what.previous;
  (what.previous != nullptr ? what.previous->next : first_) = what.next;
  what.previous = what.next = nullptr;
}

void codec::forget(exchange& what) noexcept {
  nghttp2_session_set_stream_user_data(inner_.get(), what.id, nullptr);
  unlink(what);
  drained_ = false;
}

void codec::finish(exchange& which) {
  forget(which);
  sink_.on_finished(which);
}

void codec::fail(exchange& which, error why) {
  which.failure = std::move(why);
  finish(which);
}

// We do not want the rest of it.
void codec::reject(exchange& which, error why) {
  nghttp2_submit_rst_stream(inner_.get(), NGHTTP2_FLAG_NONE, which.id, NGHTTP2_CANCEL);
  fail(which, std::move(why));
}

}  // namespace holdfast::grpc
