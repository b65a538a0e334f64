#include "grpc/codec.hpp"

#include "grpc/octets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace holdfast::grpc {

namespace {

// What the server may send ahead of us, on one stream and in all. The kernel's buffers are as large.
constexpr std::int32_t stream_window = 1 << 20;
constexpr std::int32_t connection_window = 8 << 20;
constexpr std::size_t usual_chunk = std::size_t{256} << 10U;

nghttp2_nv field(std::string_view name, std::string_view value, unsigned flags) noexcept {
  return {raw(name), raw(value), name.size(), value.size(), static_cast<std::uint8_t>(flags)};
}

}  // namespace

// ---- What nghttp2 calls ----------------------------------------------------------------------------------------

struct codec::callbacks {
  static codec& of(void* user) noexcept { return *static_cast<codec*>(user); }

  static int header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                    std::size_t name_length, const std::uint8_t* value, std::size_t value_length,
                    std::uint8_t, void* user) {
    auto& self = of(user);
    if (auto* const which = self.find(frame->hd.stream_id))
      self.take_header(*which, view(name, name_length), view(value, value_length));
    return 0;
  }

  static int data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes,
                  std::size_t length, void* user) {
    auto& self = of(user);
    if (auto* const which = self.find(id)) self.take_data(*which, view(bytes, length));
    return 0;
  }

  static int frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    of(user).take_frame(*frame);
    return 0;
  }

  static int invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int code, void* user) {
    auto& self = of(user);
    if (auto* const which = self.find(frame->hd.stream_id))
      self.fail(*which,
                {errc::protocol, fmt::format("{} sent an answer that is not HTTP/2 ({})",
                                             self.options_.server, nghttp2_strerror(code))});
    return 0;
  }

  static int not_sent(nghttp2_session*, const nghttp2_frame* frame, int code, void* user) {
    auto& self = of(user);
    if (frame->hd.type != NGHTTP2_HEADERS || self.over_) return 0;
    // nghttp2 does not know this stream yet, so neither does find().
    for (auto* open = self.first_; open != nullptr; open = open->next) {
      if (open->id != frame->hd.stream_id) continue;
      self.fail(*open,
                {errc::unavailable,
                 self.going_away_ ? fmt::format("{} takes no more requests on this connection ({})",
                                                self.options_.server, self.goaway_reason_)
                                  : fmt::format("nothing was sent to {}: {}", self.options_.server,
                                                nghttp2_strerror(code))});
      break;
    }
    return 0;
  }

  static int closed(nghttp2_session*, std::int32_t id, std::uint32_t code, void* user) {
    auto& self = of(user);
    if (auto* const which = self.find(id); which != nullptr && !self.over_)
      self.take_end(*which, code);
    return 0;
  }

  // We never say GOAWAY. nghttp2 does when the peer has broken a rule, and then what else it does is of no interest:
  // feed() says what happened.
  static int sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_GOAWAY) of(user).over_ = true;
    return 0;
  }

  static int nghttp2_error(nghttp2_session*, int, const char* text, std::size_t length,
                           void* user) {
    of(user).nghttp2_error_.assign(text, length);
    return 0;
  }

  // The bytes of a request: prefix and message, or what a stream has to say at the moment.
  static ssize_t read(nghttp2_session*, std::int32_t id, std::uint8_t* into, std::size_t room,
                      std::uint32_t* flags, nghttp2_data_source*, void* user) {
    auto* const which = of(user).find(id);
    if (which == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return which->is_stream ? read_stream(*which, into, room)
                            : read_unary(*which, into, room, *flags);
  }

  static ssize_t read_stream(exchange& from, std::uint8_t* into, std::size_t room) {
    const auto rest = std::string_view{from.outgoing}.substr(from.sent);
    const auto count = std::min(rest.size(), room);
    std::memcpy(into, rest.data(), count);
    from.sent += count;
    // What is sent goes, but not byte by byte: moving the rest to the front takes its time.
    if (from.sent > from.outgoing.size() / 2) {
      from.outgoing.erase(0, from.sent);
      from.sent = 0;
    }
    return count > 0 ? static_cast<ssize_t>(count) : static_cast<ssize_t>(NGHTTP2_ERR_DEFERRED);
  }

  static ssize_t read_unary(exchange& from, std::uint8_t* into, std::size_t room,
                            std::uint32_t& flags) {
    std::size_t count = 0;
    if (from.sent < prefix_size) {
      const auto prefix = message_prefix(from.request.size());
      count = std::min(prefix_size - from.sent, room);
      std::memcpy(into, prefix.data() + from.sent, count);
      from.sent += count;
    }
    if (from.sent >= prefix_size) {
      const auto rest = from.request.substr(from.sent - prefix_size, room - count);
      std::memcpy(into + count, rest.data(), rest.size());
      count += rest.size();
      from.sent += rest.size();
    }
    from.left = from.sent == prefix_size + from.request.size();
    if (from.left) flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(count);
  }

  // Made once and never freed, for all codecs.
  static const nghttp2_session_callbacks* all() {
    static const nghttp2_session_callbacks* const table = [] {
      nghttp2_session_callbacks* made = nullptr;
      if (nghttp2_session_callbacks_new(&made) != 0) return made;
      nghttp2_session_callbacks_set_on_header_callback(made, header);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, data);
      nghttp2_session_callbacks_set_on_frame_recv_callback(made, frame);
      nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(made, invalid_frame);
      nghttp2_session_callbacks_set_on_frame_send_callback(made, sent);
      nghttp2_session_callbacks_set_on_frame_not_send_callback(made, not_sent);
      nghttp2_session_callbacks_set_on_stream_close_callback(made, closed);
      nghttp2_session_callbacks_set_error_callback2(made, nghttp2_error);
      return made;
    }();
    return table;
  }

  static const nghttp2_option* options() {
    static const nghttp2_option* const table = [] {
      nghttp2_option* made = nullptr;
      if (nghttp2_option_new(&made) != 0) return made;
      nghttp2_option_set_no_closed_streams(made, 1);  // we have no use for priorities
      nghttp2_option_set_no_auto_ping_ack(made, 1);
      return made;
    }();
    return table;
  }
};

// ---- Requests --------------------------------------------------------------------------------------------------

codec::codec(codec_options options, codec_sink& sink) : options_(std::move(options)), sink_(sink) {
  nghttp2_session* made = nullptr;
  if (nghttp2_session_client_new2(&made, callbacks::all(), this, callbacks::options()) != 0)
    throw std::bad_alloc{};
  inner_.reset(made);
  const std::array settings{
      nghttp2_settings_entry{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, stream_window},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, codec::most_header_bytes}};
  nghttp2_submit_settings(made, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(made, NGHTTP2_FLAG_NONE, 0, connection_window);
  take_output(preface_);
}

codec::~codec() = default;

bool codec::begin(exchange& what, std::string_view method, const header_list& extra,
                  std::optional<nanoseconds> timeout) {
  if (going_away_ || nghttp2_session_check_request_allowed(inner_.get()) == 0) return false;
  // What is the same in every request is kept by both sides and costs a byte each (HPACK).
  constexpr unsigned constant = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
  fields_.clear();
  fields_.push_back(field(":method", "POST", constant));
  fields_.push_back(field(":scheme", options_.scheme, constant));
  fields_.push_back(field(":path", method, NGHTTP2_NV_FLAG_NO_COPY_NAME));
  fields_.push_back(field(":authority", options_.authority, constant));
  fields_.push_back(field("te", "trailers", constant));
  fields_.push_back(field("content-type", "application/grpc", constant));
  fields_.push_back(field("user-agent", "holdfast", constant));
  for (const auto& [name, value] : extra) fields_.push_back(field(name, value, 0));
  timeout_buffer text;
  if (timeout)  // never the same twice, so not worth keeping
    fields_.push_back(field("grpc-timeout", timeout_text(*timeout, text),
                            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX));

  const nghttp2_data_provider source{.source = {}, .read_callback = callbacks::read};
  const auto id =
      nghttp2_submit_request(inner_.get(), nullptr, fields_.data(), fields_.size(), &source, &what);
  if (id < 0) return false;
  what.id = id;
  link(what);
  drained_ = false;
  return true;
}

void codec::append(exchange& to, std::string_view message) {
  append_message(to.outgoing, message);
  // An error says that nghttp2 is not waiting for it: it has not begun, or not yet asked again.
  static_cast<void>(nghttp2_session_resume_data(inner_.get(), to.id));
  drained_ = false;
}

void codec::cancel(exchange& which) {
  nghttp2_submit_rst_stream(inner_.get(), NGHTTP2_FLAG_NONE, which.id, NGHTTP2_CANCEL);
  forget(which);
}

void codec::ping() {
  nghttp2_submit_ping(inner_.get(), NGHTTP2_FLAG_NONE, nullptr);
  drained_ = false;
}

void codec::answer_pings() {
  for (const auto& ping : pings_) nghttp2_submit_ping(inner_.get(), NGHTTP2_FLAG_ACK, ping.data());
  pings_.clear();
  drained_ = false;
}

bool codec::has_output() const noexcept {
  return !ready_.empty() || (!drained_ && nghttp2_session_want_write(inner_.get()) != 0);
}

std::size_t codec::queued_frames() const noexcept {
  return nghttp2_session_get_outbound_queue_size(inner_.get());
}

void codec::take_output(std::string& chunk) {
  chunk += ready_;
  ready_.clear();
  drain(chunk);
}

void codec::drain(std::string& chunk) {
  while (chunk.size() < usual_chunk) {
    const std::uint8_t* bytes = nullptr;
    const auto count = nghttp2_session_mem_send(inner_.get(), &bytes);
    if (count <= 0) {
      drained_ = true;
      return;
    }
    chunk.append(view(bytes, static_cast<std::size_t>(count)));
  }
}

}  // namespace holdfast::grpc
