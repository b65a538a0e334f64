// The TLS side of a stream: OpenSSL on a non-blocking socket that the stream owns.
//
// The certificate of the server is always verified, chain and name. OpenSSL allows one thread at a time in a session,
// so reading and writing share a mutex; as nothing in here blocks, it is held for the time of a system call.
#pragma once

#include "net/stream.hpp"

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

namespace holdfast::net {

class tls_session {
 public:
  // `host` is what is verified when the options have no server name. misconfigured: a file cannot be used.
  static result<std::unique_ptr<tls_session>> make(const tls_options& options,
                                                   const std::string& host, int fd);
  tls_session(const tls_session&) = delete;
  tls_session& operator=(const tls_session&) = delete;

  io_result handshake();
  io_result read(std::span<char> into);
  io_result write(std::string_view bytes);
  // Says goodbye if that can be done without waiting.
  void send_close_notify() noexcept;

  // What the callbacks of OpenSSL know of the socket.
  struct socket {
    int fd = -1;
    int failure = 0;  // errno of the last operation
    bool ended = false;
  };

 private:
  struct free_context {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  };
  struct free_session {
    void operator()(SSL* session) const noexcept { SSL_free(session); }
  };
  using context = std::unique_ptr<SSL_CTX, free_context>;

  tls_session() = default;
  static result<context> make_context(const tls_options& options);
  result<void> begin(SSL_CTX& settings, const std::string& name);
  bool offer(const std::string& protocol);
  bool is_agreed() const;
  io_result outcome(int code);

  socket socket_;
  std::string protocol_;
  std::mutex guard_;
  std::unique_ptr<SSL, free_session> session_;
  bool broken_ = false;  // after an error OpenSSL forbids everything, a goodbye too
};

}  // namespace holdfast::net
