#include "net/tls.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

namespace holdfast::net {

namespace {

// OpenSSL's own socket BIO writes without MSG_NOSIGNAL, so a peer that is gone would raise SIGPIPE in the host program.

tls_session::socket& socket_of(BIO* bio) {
  return *static_cast<tls_session::socket*>(BIO_get_data(bio));
}

int bio_write(BIO* bio, const char* bytes, int count) {
  auto& to = socket_of(bio);
  BIO_clear_retry_flags(bio);
  const auto sent =
      ::send(to.fd, bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
  to.failure = sent < 0 ? errno : 0;
  if (sent < 0 && means_again(to.failure)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* into, int room) {
  auto& from = socket_of(bio);
  BIO_clear_retry_flags(bio);
  const auto got = ::recv(from.fd, into, static_cast<std::size_t>(room), MSG_DONTWAIT);
  from.failure = got < 0 ? errno : 0;
  if (got == 0) from.ended = true;
  if (got < 0 && means_again(from.failure)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long bio_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return socket_of(bio).ended ? 1 : 0;
  return 0;
}

int bio_create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

// Made once and never freed: sessions may outlive every destructor of a static object.
const BIO_METHOD* quiet_socket() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(
        BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "holdfast socket");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    BIO_meth_set_create(made, bio_create);
    return made;
  }();
  return method;
}

// The oldest error of the thread's queue, which is the cause; the later ones only say which functions passed it on.
std::string openssl_words() {
  const auto code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  if (const char* reason = ERR_reason_error_string(code)) return reason;
  std::array<char, 256> text{};
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

error unusable(std::string_view what, const std::string& file) {
  return {errc::misconfigured,
          fmt::format("the {} {} cannot be used: {}", what, file, openssl_words())};
}

bool is_number(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  return inet_pton(AF_INET, host.c_str(), parsed.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), parsed.data()) == 1;
}

}  // namespace

result<tls_session::context> tls_session::make_context(const tls_options& options) {
  ERR_clear_error();
  context made{SSL_CTX_new(TLS_client_method())};
  if (!made) return error{errc::unavailable, "OpenSSL could not be started: " + openssl_words()};
  SSL_CTX_set_min_proto_version(made.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER, nullptr);
  // A renegotiation would make a write wait for a read. An end without goodbye is an end: the framing knows whether
  // something is missing.
  SSL_CTX_set_options(made.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(made.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(made.get(), 1);  // one system call for the head and the body of a record

  if (options.ca_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(made.get()) != 1)
      return error{errc::misconfigured,
                   "the system's certificate store cannot be used: " + openssl_words()};
  } else if (SSL_CTX_load_verify_locations(made.get(), options.ca_file.c_str(), nullptr) != 1) {
    return unusable("CA file", options.ca_file);
  }
  if (options.certificate.empty()) return made;
  if (SSL_CTX_use_certificate_chain_file(made.get(), options.certificate.c_str()) != 1)
    return unusable("client certificate", options.certificate);
  const auto& key = options.key.empty() ? options.certificate : options.key;
  if (SSL_CTX_use_PrivateKey_file(made.get(), key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(made.get()) != 1)
    return unusable("client key", key);
  return made;
}

result<std::unique_ptr<tls_session>> tls_session::make(const tls_options& options,
                                                       const std::string& host, int fd) {
  // Anew for every connection, so that renewed certificates are seen without a restart.
  auto settings = make_context(options);
  if (!settings) return std::move(settings).error();
  std::unique_ptr<tls_session> made{new tls_session};
  made->socket_.fd = fd;
  if (auto begun =
          made->begin(**settings, options.server_name.empty() ? host : options.server_name);
      !begun)
    return std::move(begun).error();
  if (!made->offer(options.protocol))
    return error{errc::unavailable, "no TLS session is to be had: " + openssl_words()};
  return made;
}

bool tls_session::offer(const std::string& protocol) {
  protocol_ = protocol;
  if (protocol.empty()) return true;
  std::string list{static_cast<char>(protocol.size())};
  list += protocol;
  return SSL_set_alpn_protos(session_.get(), reinterpret_cast<const unsigned char*>(list.data()),
                             static_cast<unsigned>(list.size())) == 0;
}

// A server that knows nothing of the offer has not refused it.
bool tls_session::is_agreed() const {
  const unsigned char* chosen = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(session_.get(), &chosen, &length);
  return length == 0 ||
         std::string_view{reinterpret_cast<const char*>(chosen), length} == protocol_;
}

result<void> tls_session::begin(SSL_CTX& settings, const std::string& name) {
  session_.reset(SSL_new(&settings));
  BIO* bio = session_ && quiet_socket() ? BIO_new(quiet_socket()) : nullptr;
  if (bio == nullptr)
    return error{errc::unavailable, "no TLS session is to be had: " + openssl_words()};
  BIO_set_data(bio, &socket_);
  SSL_set_bio(session_.get(), bio, bio);
  SSL_set_connect_state(session_.get());

  auto* rules = SSL_get0_param(session_.get());
  X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool number = is_number(name);
  const bool accepted = number ? X509_VERIFY_PARAM_set1_ip_asc(rules, name.c_str()) == 1
                               : X509_VERIFY_PARAM_set1_host(rules, name.c_str(), name.size()) == 1;
  // An empty name would switch the check of the name off.
  if (!accepted || name.empty())
    return error{errc::misconfigured,
                 fmt::format("\"{}\" is no name that a certificate can be checked for", name)};
  // SNI is for names only (RFC 6066, section 3).
  if (!number) {
    auto copy = name;  // OpenSSL's macro casts a const away, and the compiler minds
    SSL_ctrl(session_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, copy.data());
  }
  return {};
}

io_result tls_session::outcome(int code) {
  using direction = io_result::direction;
  switch (SSL_get_error(session_.get(), code)) {
    case SSL_ERROR_WANT_READ:
      return io_result::blocked(direction::read);
    case SSL_ERROR_WANT_WRITE:
      return io_result::blocked(direction::write);
    case SSL_ERROR_ZERO_RETURN:
      return io_result::end();
    case SSL_ERROR_SYSCALL:
      broken_ = true;
      ERR_clear_error();
      if (socket_.failure == 0) return io_result::end();
      return io_result::failure(std::strerror(socket_.failure));
    default:
      broken_ = true;
      return io_result::failure(openssl_words());
  }
}

io_result tls_session::handshake() {
  std::lock_guard locked{guard_};
  ERR_clear_error();
  const int code = SSL_do_handshake(session_.get());
  if (code == 1) {
    if (is_agreed()) return io_result::moved(0);
    return io_result::failure("the server does not speak " + protocol_, errc::protocol);
  }
  auto answer = outcome(code);
  if (answer.what == io_result::kind::closed)
    return io_result::failure("the server closed the connection during the TLS handshake");
  if (answer.what != io_result::kind::failed) return answer;
  if (const long verdict = SSL_get_verify_result(session_.get()); verdict != X509_V_OK) {
    return io_result::failure(fmt::format("the server's certificate was refused: {}",
                                          X509_verify_cert_error_string(verdict)),
                              errc::misconfigured);
  }
  answer.why = "the TLS handshake failed: " + answer.why;
  return answer;
}

io_result tls_session::read(std::span<char> into) {
  std::lock_guard locked{guard_};
  ERR_clear_error();
  const auto room = static_cast<int>(std::min<std::size_t>(into.size(), INT_MAX));
  const int got = SSL_read(session_.get(), into.data(), room);
  return got > 0 ? io_result::moved(static_cast<std::size_t>(got)) : outcome(got);
}

io_result tls_session::write(std::string_view bytes) {
  std::lock_guard locked{guard_};
  ERR_clear_error();
  const auto count = static_cast<int>(std::min<std::size_t>(bytes.size(), INT_MAX));
  const int sent = SSL_write(session_.get(), bytes.data(), count);
  return sent > 0 ? io_result::moved(static_cast<std::size_t>(sent)) : outcome(sent);
}

void tls_session::send_close_notify() noexcept {
  std::lock_guard locked{guard_};
  if (broken_ || !SSL_is_init_finished(session_.get())) return;
  ERR_clear_error();
  SSL_shutdown(session_.get());
  ERR_clear_error();
}

}  // namespace holdfast::net
