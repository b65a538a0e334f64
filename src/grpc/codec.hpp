// One HTTP/2 connection as a gRPC client sees it: requests in, bytes out; bytes in, answers out. No sockets, no locks,
// no clock. The owner guards it, feeds it, and sends what it wants sent.
//
// Nothing here trusts the peer: messages and header fields are capped before they cost memory, and what is not HTTP/2
// ends it with an error.
#pragma once

#include "grpc/channel.hpp"
#include "grpc/wire.hpp"

#include <nghttp2/nghttp2.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::grpc {

// One request and its answer: an HTTP/2 stream. Belongs to the caller; stays alive until it is finished or cancelled.
struct exchange {
  // What is sent. A unary request stays where the caller has it; the messages of a stream are copied.
  bool is_stream = false;
  std::string_view request{};
  std::string outgoing{};
  std::size_t sent = 0;
  // The whole request was picked up. Before that the server cannot have executed it.
  bool left = false;

  // What has come. Either a failure, or an answer of the server.
  reply answer{};
  std::optional<error> failure{};

  // The codec's own.
  std::int32_t id = 0;
  message_reader reader{};
  unsigned http_status = 0, messages = 0;
  bool is_grpc = false, has_status = false;
  std::size_t header_bytes = 0;
  std::string content_type{};
  exchange* previous = nullptr;
  exchange* next = nullptr;
};

// Called from within feed() and take_output().
class codec_sink {
 public:
  virtual void on_message(exchange& of, std::string_view message) = 0;  // of a stream
  virtual void on_finished(exchange& which) = 0;  // the codec does not know it any more

 protected:
  ~codec_sink() = default;
};

struct codec_options {
  std::string scheme;     // "http", "https"
  std::string authority;  // "127.0.0.1:2379"
  std::string server;     // for sentences
  std::size_t largest_message = 0;
};

class codec {
 public:
  // The header fields of one answer, trailers included, with 32 bytes of overhead each (RFC 9113, section 6.5.2).
  static constexpr std::size_t most_header_bytes = std::size_t{64} << 10U;

  codec(codec_options options, codec_sink& sink);
  ~codec();
  codec(const codec&) = delete;
  codec& operator=(const codec&) = delete;

  // False: no request can be made on it any more; nothing has happened.
  bool begin(exchange& what, std::string_view method, const header_list& extra,
             std::optional<nanoseconds> timeout);
  void append(exchange& to, std::string_view message);
  void cancel(exchange& which);  // no on_finished()
  void ping();
  // Pings of the server are answered when the owner says so; see http2_protocol::answer_pings_soon().
  bool owes_pings() const noexcept { return !pings_.empty(); }
  void answer_pings();

  // What the peer may not know before it has said hello; and whether it has.
  const std::string& preface() const noexcept { return preface_; }
  bool is_greeted() const noexcept { return greeted_; }

  bool has_output() const noexcept;
  std::size_t queued_frames() const noexcept;
  void take_output(std::string& chunk);  // appends
  // An error: the connection is over.
  std::optional<error> feed(std::string_view bytes);

  // The server wants to go: old requests may be finished, new ones go elsewhere.
  bool is_going_away() const noexcept { return going_away_; }
  // How many frames with answers have come, of any request.
  std::uint64_t answer_frames() const noexcept { return answer_frames_; }
  exchange* first() const noexcept { return first_; }  // of those that are open

 private:
  struct callbacks;
  struct free_session {
    void operator()(nghttp2_session* which) const noexcept { nghttp2_session_del(which); }
  };

  void drain(std::string& chunk);
  exchange* find(std::int32_t id) const noexcept;
  void link(exchange& what) noexcept;
  void unlink(exchange& what) noexcept;
  void forget(exchange& what) noexcept;
  void finish(exchange& which);
  void fail(exchange& which, error why);
  void reject(exchange& which, error why);
  void judge(exchange& which) const;
  void take_header(exchange& of, std::string_view name, std::string_view value);
  void take_data(exchange& of, std::string_view bytes);
  void take_frame(const nghttp2_frame& frame);
  void take_end(exchange& of, std::uint32_t code);
  error broken(std::string_view why) const;

  const codec_options options_;
  codec_sink& sink_;
  std::unique_ptr<nghttp2_session, free_session> inner_;
  std::string preface_;
  std::string ready_;  // to be sent: what feed() has made nghttp2 say
  bool greeted_ = false;
  bool going_away_ = false;
  bool over_ = false;
  bool drained_ = false;  // nghttp2 had nothing to send, and nothing has happened since
  std::string goaway_reason_, nghttp2_error_;
  std::uint64_t answer_frames_ = 0;
  std::vector<std::array<std::uint8_t, 8>> pings_;  // to be answered
  exchange* first_ = nullptr;
  std::vector<nghttp2_nv> fields_;  // its memory is used again
};

}  // namespace holdfast::grpc
