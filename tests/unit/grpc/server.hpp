// A gRPC server for transport tests that does what it is told, right or wrong: an nghttp2 session per connection.
//
//   line_server server{[](peer& client) {
//     h2_peer http{client};
//     while (const auto got = http.next(h2_peer::kind::message)) http.reply(got->stream, got->text);
//   }};
#pragma once

#include "grpc/channel.hpp"
#include "grpc/wire.hpp"

#include "unit/net/line_server.hpp"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

class h2_peer {
 public:
  // What a client does. A message: text; a request: its path; an end: the client will say no more; a reset: its code.
  enum class kind { request, message, end, reset, ping, pong };
  struct event {
    kind what;
    std::int32_t stream = 0;
    std::string text{};
    std::uint32_t code = 0;
    std::size_t length = 0;  // of the frame
  };
  using settings = std::vector<nghttp2_settings_entry>;
  using fields = std::map<std::string, std::string>;

  explicit h2_peer(peer& client, const settings& how = {}) : client_(client) {
    nghttp2_session_callbacks* calls = nullptr;
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
    nghttp2_session_server_new(&session_, calls, this);
    nghttp2_session_callbacks_del(calls);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, how.data(), how.size());
    flush();
  }
  h2_peer(const h2_peer&) = delete;
  h2_peer& operator=(const h2_peer&) = delete;
  ~h2_peer() { nghttp2_session_del(session_); }

  // The next event, of one kind if given (others are dropped). Nothing when the client is gone.
  std::optional<event> next(std::optional<kind> wanted = std::nullopt) {
    for (;;) {
      while (!events_.empty()) {
        auto first = std::move(events_.front());
        events_.pop_front();
        if (!wanted || first.what == *wanted) return first;
      }
      char some[65536];
      const auto got = ::recv(client_.descriptor(), some, sizeof some, 0);
      if (got <= 0) return std::nullopt;
      if (nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(some),
                                   static_cast<std::size_t>(got)) < 0)
        return std::nullopt;
      flush();
    }
  }
  const fields& headers_of(std::int32_t stream) { return headers_[stream]; }

  // ---- Answers: all at once, or piece by piece.
  void reply(std::int32_t stream, std::string_view message, int status = 0) {
    begin(stream);
    say(stream, message);
    finish(stream, status);
  }
  void begin(std::int32_t stream,
             const fields& with = {{":status", "200"}, {"content-type", "application/grpc"}}) {
    nghttp2_data_provider source{};
    source.read_callback = on_read;
    const auto list = nv(with);
    nghttp2_submit_response(session_, stream, list.data(), list.size(), &source);
    flush();
  }
  void say(std::int32_t stream, std::string_view message) {
    std::string framed;
    grpc::append_message(framed, message);
    say_raw(stream, framed);
  }
  void say_raw(std::int32_t stream, std::string_view bytes) {
    answers_[stream].bytes += bytes;
    nghttp2_session_resume_data(session_, stream);
    flush();
  }
  void finish(std::int32_t stream, int status, const std::string& text = {}) {
    fields last{{"grpc-status", std::to_string(status)}};
    if (!text.empty()) last["grpc-message"] = text;
    finish_with(stream, last);
  }
  void finish_with(std::int32_t stream, const fields& trailers) {
    answers_[stream].finished = true;
    answers_[stream].trailers = trailers;
    nghttp2_session_resume_data(session_, stream);
    flush();
  }
  // The whole answer in one block of header fields.
  void only(std::int32_t stream, const fields& with) {
    const auto list = nv(with);
    nghttp2_submit_response(session_, stream, list.data(), list.size(), nullptr);
    flush();
  }

  void reset(std::int32_t stream, std::uint32_t code) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, code);
    flush();
  }
  void goaway(std::int32_t last, std::uint32_t code = NGHTTP2_NO_ERROR, std::string_view why = {}) {
    nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, last, code,
                          reinterpret_cast<const std::uint8_t*>(why.data()), why.size());
    flush();
  }
  void ping() {
    nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
    flush();
  }
  void set(const settings& how) {
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, how.data(), how.size());
    flush();
  }
  void raw(std::string_view bytes) { client_.write(bytes); }
  // From now on nothing is sent: neither answers nor acknowledgements.
  void fall_silent() { silent_ = true; }

  // Answers every message with the same.
  void echo() {
    while (const auto got = next(kind::message)) reply(got->stream, got->text);
  }

 private:
  struct answer {
    std::string bytes;
    std::size_t sent = 0;
    bool finished = false;
    fields trailers;
  };

  static h2_peer& of(void* user) { return *static_cast<h2_peer*>(user); }
  static std::string_view view(const std::uint8_t* bytes, std::size_t length) {
    return {reinterpret_cast<const char*>(bytes), length};
  }
  // Pseudo-header fields begin with a colon, so they come first in a map.
  static std::vector<nghttp2_nv> nv(const fields& from) {
    std::vector<nghttp2_nv> out;
    const auto raw = [](const std::string& text) {
      return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
    };
    for (const auto& [name, value] : from)
      out.push_back({raw(name), raw(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
    return out;
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_length, const std::uint8_t* value, std::size_t value_length,
                       std::uint8_t, void* user) {
    of(user).headers_[frame->hd.stream_id][std::string{view(name, name_length)}] =
        view(value, value_length);
    return 0;
  }
  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes,
                     std::size_t length, void* user) {
    auto rest = view(bytes, length);
    auto& self = of(user);
    while (!rest.empty()) {
      const auto whole = self.readers_[id].feed(rest, std::size_t{1} << 30U);
      if (!whole || !*whole) break;
      self.events_.push_back({kind::message, id, self.readers_[id].release()});
    }
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    auto& self = of(user);
    const auto id = frame->hd.stream_id;
    if (frame->hd.type == NGHTTP2_HEADERS)
      self.events_.push_back({kind::request, id, self.headers_[id][":path"], 0, frame->hd.length});
    const bool carries = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (carries && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
      self.events_.push_back({kind::end, id});
    if (frame->hd.type == NGHTTP2_RST_STREAM)
      self.events_.push_back({kind::reset, id, {}, frame->rst_stream.error_code});
    if (frame->hd.type == NGHTTP2_PING)
      self.events_.push_back({(frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 ? kind::pong : kind::ping});
    return 0;
  }
  static ssize_t on_read(nghttp2_session* session, std::int32_t id, std::uint8_t* into,
                         std::size_t room, std::uint32_t* flags, nghttp2_data_source*, void* user) {
    auto& from = of(user).answers_[id];
    const auto rest = std::string_view{from.bytes}.substr(from.sent, room);
    std::memcpy(into, rest.data(), rest.size());
    from.sent += rest.size();
    if (from.sent == from.bytes.size() && from.finished) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (from.trailers.empty()) return static_cast<ssize_t>(rest.size());
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const auto list = nv(from.trailers);
      nghttp2_submit_trailer(session, id, list.data(), list.size());
    } else if (rest.empty()) {
      return NGHTTP2_ERR_DEFERRED;
    }
    return static_cast<ssize_t>(rest.size());
  }

  void flush() {
    for (;;) {
      const std::uint8_t* bytes = nullptr;
      const auto count = nghttp2_session_mem_send(session_, &bytes);
      if (count <= 0) return;
      if (!silent_) client_.write(view(bytes, static_cast<std::size_t>(count)));
    }
  }

  peer& client_;
  nghttp2_session* session_ = nullptr;
  bool silent_ = false;
  std::deque<event> events_;
  std::map<std::int32_t, fields> headers_;
  std::map<std::int32_t, grpc::message_reader> readers_;
  std::map<std::int32_t, answer> answers_;
};

inline line_server::script echoing() {
  return [](peer& client) { h2_peer{client}.echo(); };
}

inline grpc::channel_options grpc_to(std::uint16_t port) {
  grpc::channel_options options;
  options.where.host = "127.0.0.1";
  options.where.port = port;
  options.description = "grpc://127.0.0.1:" + std::to_string(port);
  return options;
}

inline result<grpc::reply> call(grpc::channel& on, std::string_view message,
                                const net::limits& until = within(patience)) {
  return on.call("/test.Echo/Say", message, {}, until);
}

// The text of a good answer, or what went wrong.
inline std::string text_of(const result<grpc::reply>& got) {
  if (!got) return "(" + got.error().message() + ")";
  return got->ok() ? got->body
                   : "[" + std::to_string(static_cast<int>(got->status)) + " " + got->message + "]";
}

// Remembers what it was told, and where.
class grpc_reply final : public grpc::reply_handler {
 public:
  void on_reply(result<grpc::reply> answer) noexcept override {
    thread = std::this_thread::get_id();
    answer_ = std::move(answer);
    times.fetch_add(1);
  }
  bool came() const {
    return wait_until([this] { return times.load() > 0; });
  }
  result<grpc::reply> get() const {
    if (!came()) return error{errc::timed_out, "the handler was never told"};
    return answer_;
  }

  std::atomic<int> times{0};
  std::thread::id thread;

 private:
  result<grpc::reply> answer_ = grpc::reply{};
};

// Of a stream: everything it hears.
class stream_ear final : public grpc::stream_listener {
 public:
  void on_message(std::string_view message) noexcept override {
    std::lock_guard locked{guard_};
    if (end_) ++late_;
    heard_.emplace_back(message);
    thread_ = std::this_thread::get_id();
  }
  void on_end(result<grpc::reply> why) noexcept override {
    std::lock_guard locked{guard_};
    if (end_) ++late_;
    end_ = std::move(why);
  }
  std::vector<std::string> heard() const {
    std::lock_guard locked{guard_};
    return heard_;
  }
  bool hears(std::size_t count) const {
    return wait_until([&] {
      std::lock_guard locked{guard_};
      return heard_.size() >= count;
    });
  }
  bool is_over() const {
    std::lock_guard locked{guard_};
    return end_.has_value();
  }
  result<grpc::reply> end() const {
    if (!wait_until([this] { return is_over(); }))
      return error{errc::timed_out, "the stream has not ended"};
    std::lock_guard locked{guard_};
    return *end_;
  }
  int late() const {  // calls after the last one
    std::lock_guard locked{guard_};
    return late_;
  }
  std::thread::id thread() const {
    std::lock_guard locked{guard_};
    return thread_;
  }

 private:
  mutable std::mutex guard_;
  std::vector<std::string> heard_;
  std::optional<result<grpc::reply>> end_;
  int late_ = 0;
  std::thread::id thread_;
};

}  // namespace holdfast::testing
