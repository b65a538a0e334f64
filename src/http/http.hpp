// HTTP/1.1 as a client of a lock service needs it, as pure code: bytes in, answers and server-sent events out, no I/O.
//
// Nothing here trusts the peer: lengths are capped before anything is kept, and memory is taken only for bytes that
// have arrived. Anything that is not the protocol is an error, never undefined behaviour. What could be read in two
// ways (a length given twice, a length beside chunks, an answer that ends with its connection) is refused.
#pragma once

#include <holdfast/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::http {

struct caps {
  std::size_t head = std::size_t{16} << 10U;
  std::size_t body = std::size_t{16} << 20U;
};

// Appends one request with a JSON body; an empty body is none. `credentials`: what Authorization says; empty: nothing.
// REQUIRES: no control characters in any of them but the body.
struct request {
  std::string_view method;
  std::string_view target;
  std::string_view host;
  std::string_view credentials{};
  std::string_view body{};
  std::string_view accepts = "application/json";
};
void append_request(std::string& to, const request& what);

// The beginning of an answer, through its empty line. The views point into what was read.
struct head {
  int status = 0;
  std::string_view content_type;
  std::string_view retry_after;
  std::optional<std::uint64_t> length;  // of its body; nothing: not said
  bool is_chunked = false;
  std::size_t bytes = 0;  // of the head itself
};
// Nothing: not complete yet. `searched`: how many of the bytes were looked through before, in vain; kept by the caller.
result<std::optional<head>> read_head(std::string_view bytes, std::size_t& searched,
                                      const caps& limits = {});

// One piece of a chunked body, with its frame around it.
struct chunk {
  std::size_t bytes = 0;  // 0: not complete yet
  std::string_view data;  // empty: the last one
};
result<chunk> next_chunk(std::string_view bytes, std::size_t longest);

// Cuts the byte stream into answers. Looks at every byte about once, however the network splits them.
class answer_scanner {
 public:
  explicit answer_scanner(caps limits = {}) : limits_(limits) {}
  // The length of the answer at the beginning of `bytes`; 0: not complete, asked again with more bytes.
  result<std::size_t> next(std::string_view bytes);

 private:
  result<std::size_t> finish(std::size_t length);
  result<std::size_t> scan_chunks(std::string_view bytes);

  caps limits_;
  std::size_t searched_ = 0;
  std::optional<head> head_{};
  std::size_t scanned_ = 0;  // of a chunked answer: whole chunks, and the head
  std::size_t body_ = 0;     // what they carried
};

struct answer {
  int status = 0;
  std::string content_type;  // without its parameters, in small letters
  std::string retry_after;
  std::string body;
};
// `bytes` hold one whole answer, as a scanner cuts them; anything else is a protocol error.
result<answer> read_answer(std::string_view bytes, const caps& limits = {});

// Cuts the connection of an event stream: first its head, then what comes of its body, piece by piece.
class stream_scanner {
 public:
  struct piece {
    std::size_t bytes = 0;  // 0: not complete yet
    bool is_head = false;
  };
  result<piece> next(std::string_view bytes);
  bool is_chunked() const noexcept { return is_chunked_; }

 private:
  static constexpr std::size_t longest_chunk = std::size_t{1} << 20U;
  bool has_head_ = false;
  bool is_chunked_ = false;
  std::size_t searched_ = 0;
};

// Server-sent events, from the body of such a stream.
struct event {
  std::string name;  // "message" when it has none
  std::string data;
};
class event_reader {
 public:
  // Appends the events that are complete with these bytes. protocol: one is too long.
  result<void> read(std::string_view bytes, std::vector<event>& out);

 private:
  static constexpr std::size_t longest_event = std::size_t{1} << 20U;
  void take_line(std::string_view line, std::vector<event>& out);

  std::string line_;  // the beginning of one
  event building_;
  bool has_data_ = false;
};

}  // namespace holdfast::http
