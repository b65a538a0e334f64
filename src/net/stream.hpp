// A byte stream to a server: TCP, TLS over TCP, or a Unix socket. Non-blocking; the caller polls.
//
//   auto io = stream::open(where, endpoint);                    // the connection is under way
//   io->advance();                                              // again whenever the wanted direction is ready
//   io->write(request); io->read(room);                         // once advance() has said `done`
//
// read() and write() may be called by two threads at once, each of them by one at a time. Never raises SIGPIPE.
#pragma once

#include <holdfast/result.hpp>

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::net {

struct tls_options {
  std::string ca_file;      // empty: the system's
  std::string certificate;  // our own, PEM; empty: none
  std::string key;          // its key, PEM
  std::string
      server_name;  // verified against the certificate, and sent as SNI; a host name or an address
  std::string
      protocol;  // what is to be spoken, for servers that know several (ALPN): "h2"; empty: not said
};

struct address {
  std::string host;  // or an absolute path with is_unix
  std::uint16_t port = 0;
  bool is_unix = false;
  bool use_tls = false;
  tls_options tls;
};

// One place to connect to: what an address becomes when its host name is looked up.
struct endpoint {
  sockaddr_storage where{};
  socklen_t length = 0;
  std::string text;  // for sentences: "127.0.0.1:6379"
};

// The endpoints of an address that needs no look-up (a number or a path); nothing for a host name.
std::optional<result<std::vector<endpoint>>> endpoints_without_lookup(const address& of);
// Asks the system's resolver, which may take its time.
result<std::vector<endpoint>> look_up(const std::string& host, std::uint16_t port);

// What an attempt to move bytes came to.
struct io_result {
  enum class kind : std::uint8_t { done, would_block, closed, failed };
  enum class direction : std::uint8_t { read, write };

  kind what = kind::done;
  direction wanted = direction::read;  // would_block: when this is ready, try again
  errc code = errc::unavailable;       // failed
  std::size_t bytes = 0;               // done: how many were moved, at least one
  std::string why;                     // failed: half a sentence, "Connection refused"

  static io_result moved(std::size_t bytes) { return {.bytes = bytes}; }
  static io_result blocked(direction on) { return {.what = kind::would_block, .wanted = on}; }
  static io_result end() { return {.what = kind::closed}; }
  static io_result failure(std::string why, errc code = errc::unavailable) {
    return {.what = kind::failed, .code = code, .why = std::move(why)};
  }
};

// A number of errno's that says: nothing is wrong, try again.
bool means_again(int number) noexcept;

class tls_session;

class stream {
 public:
  // Makes a socket and begins to connect. unavailable: it was refused at once, or no socket is to be had;
  // misconfigured: a file named in the TLS options cannot be used.
  static result<std::unique_ptr<stream>> open(const address& where, const endpoint& to);
  ~stream();
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  // Connects and shakes hands, step by step. `done` (with no bytes): the stream may be used.
  io_result advance();
  io_result read(std::span<char> into);
  io_result write(std::string_view bytes);
  // Could there be more to read although the socket is not readable? Of the reading thread.
  bool reads_ahead() const noexcept { return tls_ != nullptr; }

  // Says goodbye and ends both directions, so that a thread that polls it wakes up. What has arrived can still be read.
  // The destructor only closes, without a word: in a forked child the connection is still the parent's.
  void shutdown() noexcept;
  int descriptor() const noexcept { return fd_; }

 private:
  explicit stream(int fd);
  std::optional<io_result> finish_connecting() const;

  const int fd_;
  bool connected_ = false;
  std::unique_ptr<tls_session> tls_;
};

}  // namespace holdfast::net
