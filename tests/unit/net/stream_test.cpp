// Streams of bytes, and above all whom TLS trusts.
#include "net/stream.hpp"

#include "net/channel.hpp"
#include "net/reactor.hpp"

#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"
#include "unit/net/certificates.hpp"
#include "unit/net/line_server.hpp"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using net::address;
using net::io_result;
using net::stream;
using testing::fails_with;
using testing::gate;
using testing::identity;
using testing::is_ok;
using testing::line_server;
using testing::peer;
using testing::wait_until;
using testing::within;

// Polls until the action has come to something.
template <class Action>
io_result drive(stream& io, Action&& action) {
  for (;;) {
    auto got = action();
    if (got.what != io_result::kind::would_block) return got;
    const bool write = got.wanted == io_result::direction::write;
    pollfd ready{.fd = io.descriptor(),
                 .events = static_cast<short>(write ? POLLOUT : POLLIN),
                 .revents = 0};
    if (::poll(&ready, 1, 10'000) <= 0) return io_result::failure("nothing happened");
  }
}

// Connects and says hello; the line that comes back, or the failure.
result<std::string> talk(const address& where) {
  auto endpoints = net::endpoints_without_lookup(where).value();
  if (!endpoints) return endpoints.error();
  auto io = stream::open(where, endpoints->front());
  if (!io) return io.error();
  auto& on = **io;
  if (auto up = drive(on, [&] { return on.advance(); }); up.what != io_result::kind::done)
    return error{up.code, up.why};
  if (auto sent = drive(on, [&] { return on.write("hello\n"); });
      sent.what != io_result::kind::done)
    return error{sent.code, sent.why};
  std::string line;
  while (!line.ends_with('\n')) {
    char some[256];
    const auto got = drive(on, [&] { return on.read(some); });
    if (got.what == io_result::kind::closed) return error{errc::outcome_unknown, "closed"};
    if (got.what == io_result::kind::failed) return error{got.code, got.why};
    line.append(some, got.bytes);
  }
  return line;
}

// The server's side: echoes lines over TLS, and notes who comes.
class tls_server {
 public:
  explicit tls_server(const identity& own, const identity* client_ca = nullptr)
      : context_(SSL_CTX_new(TLS_server_method())) {
    SSL_CTX_use_certificate(context_, own.certificate());
    SSL_CTX_use_PrivateKey(context_, own.key());
    if (client_ca != nullptr) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), client_ca->certificate());
      SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    }
  }
  tls_server(const tls_server&) = delete;
  tls_server& operator=(const tls_server&) = delete;
  ~tls_server() {
    server_.reset();
    SSL_CTX_free(context_);
  }

  address where(const std::string& ca_file) const {
    address to;
    to.host = "127.0.0.1";
    to.port = server_->port();
    to.use_tls = true;
    to.tls.ca_file = ca_file;
    return to;
  }
  std::string asked_for() const {  // the SNI of the last client
    std::lock_guard locked{guard_};
    return asked_for_;
  }
  void limit_to(int version) { SSL_CTX_set_max_proto_version(context_, version); }
  // Chooses this, whatever it is offered (ALPN).
  void insist_on(const std::string& protocol) {
    protocol_ = protocol;
    SSL_CTX_set_alpn_select_cb(
        context_,
        [](SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char*,
           unsigned, void* name) {
          const auto& text = *static_cast<std::string*>(name);
          *chosen = reinterpret_cast<const unsigned char*>(text.data());
          *length = static_cast<unsigned char>(text.size());
          return SSL_TLSEXT_ERR_OK;
        },
        &protocol_);
  }

 private:
  void serve(peer& client) {
    // This side writes with OpenSSL's own BIO. The signal goes to the thread that writes, so the client's threads stay
    // as they are.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    SSL* const session = SSL_new(context_);
    SSL_set_fd(session, client.descriptor());
    if (SSL_accept(session) == 1) {
      if (const char* name = SSL_get_servername(session, TLSEXT_NAMETYPE_host_name)) {
        std::lock_guard locked{guard_};
        asked_for_ = name;
      }
      char some[4096];
      for (int got = 0; (got = SSL_read(session, some, sizeof some)) > 0;)
        if (SSL_write(session, some, got) <= 0) break;
    }
    SSL_free(session);
  }

  SSL_CTX* const context_;
  std::string protocol_;
  mutable std::mutex guard_;
  std::string asked_for_;
  std::unique_ptr<line_server> server_ =
      std::make_unique<line_server>([this](peer& client) { serve(client); });
};

struct net_tls : ::testing::Test {
  testing::temp_dir dir;
  identity ca{{.subject = "Test CA", .is_ca = true}};
  std::string ca_file = ca.write_certificate(dir.file("ca.pem"));

  identity signed_for(const std::string& names) const {
    return identity{{.subject = "a server", .names = names, .issuer = &ca}};
  }
};

TEST_F(net_tls, server_with_our_cas_certificate_for_its_name_is_trusted_and_asked_by_name) {
  const tls_server server{signed_for("DNS:db.test")};
  auto where = server.where(ca_file);
  where.tls.server_name = "db.test";
  const auto answer = talk(where);
  ASSERT_TRUE(is_ok(answer));
  EXPECT_EQ(*answer, "hello\n");
  EXPECT_EQ(server.asked_for(), "db.test");
}

TEST_F(net_tls, certificate_for_an_address_is_accepted_for_that_address_only) {
  const tls_server right{signed_for("IP:127.0.0.1")};
  EXPECT_TRUE(is_ok(talk(right.where(ca_file))));
  EXPECT_EQ(right.asked_for(), "") << "no SNI for an address";
  const tls_server wrong{signed_for("IP:127.0.0.2")};
  EXPECT_TRUE(fails_with(talk(wrong.where(ca_file)), errc::misconfigured));
}

TEST_F(net_tls, wrong_host_name_is_refused) {
  const tls_server server{signed_for("DNS:other.test")};
  auto where = server.where(ca_file);
  where.tls.server_name = "db.test";
  const auto answer = talk(where);
  ASSERT_TRUE(fails_with(answer, errc::misconfigured));
  EXPECT_NE(answer.error().message().find("hostname mismatch"), std::string::npos)
      << answer.error().message();
}

TEST_F(net_tls, unknown_ca_is_refused) {
  const identity stranger{{.subject = "somebody", .names = "IP:127.0.0.1"}};
  const tls_server server{stranger};
  EXPECT_TRUE(fails_with(talk(server.where(ca_file)), errc::misconfigured));
  EXPECT_TRUE(fails_with(talk(server.where("")), errc::misconfigured)) << "the system's store";
}

TEST_F(net_tls, a_protocol_is_offered_and_another_one_refused) {
  tls_server server{signed_for("IP:127.0.0.1")};
  auto where = server.where(ca_file);
  where.tls.protocol = "h2";
  EXPECT_TRUE(is_ok(talk(where))) << "the server has no opinion";
  server.insist_on("h2");
  EXPECT_TRUE(is_ok(talk(where)));
  server.insist_on("http/1.1");
  EXPECT_FALSE(talk(where));
  where.tls.protocol.clear();
  EXPECT_TRUE(is_ok(talk(where))) << "nothing was offered";
}

TEST_F(net_tls, expired_certificate_is_refused) {
  const identity old{{.subject = "old",
                      .names = "IP:127.0.0.1",
                      .issuer = &ca,
                      .valid_from = -7200,
                      .valid_until = -3600}};
  const tls_server server{old};
  const auto answer = talk(server.where(ca_file));
  ASSERT_TRUE(fails_with(answer, errc::misconfigured));
  EXPECT_NE(answer.error().message().find("expired"), std::string::npos)
      << answer.error().message();
}

TEST_F(net_tls, tls_1_1_is_refused_and_1_2_is_not) {
  tls_server server{signed_for("IP:127.0.0.1")};
  server.limit_to(TLS1_2_VERSION);
  EXPECT_TRUE(is_ok(talk(server.where(ca_file))));
  server.limit_to(TLS1_1_VERSION);
  EXPECT_TRUE(fails_with(talk(server.where(ca_file)), errc::unavailable));
}

TEST_F(net_tls, client_certificate_is_shown_when_it_is_asked_for) {
  const tls_server server{signed_for("IP:127.0.0.1"), &ca};
  auto where = server.where(ca_file);
  EXPECT_FALSE(talk(where).has_value()) << "none was given";
  const identity us{{.subject = "us", .issuer = &ca}};
  where.tls.certificate = us.write_certificate(dir.file("us.pem"));
  where.tls.key = us.write_key(dir.file("us.key"));
  EXPECT_TRUE(is_ok(talk(where)));
}

TEST_F(net_tls, files_that_cannot_be_used_are_misconfigured_and_named) {
  const tls_server server{signed_for("IP:127.0.0.1")};
  auto where = server.where(dir.file("missing.pem"));
  auto answer = talk(where);
  ASSERT_TRUE(fails_with(answer, errc::misconfigured));
  EXPECT_NE(answer.error().message().find("missing.pem"), std::string::npos)
      << answer.error().message();
  where = server.where(ca_file);
  where.tls.certificate = ca_file;
  where.tls.key = ca_file;
  EXPECT_TRUE(fails_with(talk(where), errc::misconfigured)) << "no key in it";
}

TEST_F(net_tls, server_that_does_not_speak_tls_is_unavailable) {
  line_server server{[](peer& client) {
    client.read_line();
    client.write("-ERR no TLS here\r\n");
  }};
  address where;
  where.host = "127.0.0.1";
  where.port = server.port();
  where.use_tls = true;
  where.tls.ca_file = ca_file;
  EXPECT_TRUE(fails_with(talk(where), errc::unavailable));
}

TEST_F(net_tls, threads_and_sends_share_a_tls_channel) {
  const tls_server server{signed_for("IP:127.0.0.1")};
  const auto reactor = std::move(net::reactor::start()).value();
  auto options = testing::to_port(0);
  options.where = server.where(ca_file);
  net::channel on{*reactor, options};
  struct count final : net::reply_handler {
    std::atomic<int> right{0};
    void on_reply(result<std::string_view> frames) noexcept override {
      if (frames && *frames == "async\n") ++right;
    }
  } async;
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          if (i % 2 == 0) on.send("async\n", 1, within(10s), async);
          if (i % 2 == 1) on.send_now("async\n", 1, within(10s), async);
          const auto line = std::to_string(t) + "-" + std::to_string(i);
          const auto got = testing::ask(on, line);
          if (!got || *got != line) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(wait_until([&] { return async.right == 800; })) << async.right;
}

TEST_F(net_tls, big_requests_and_answers_go_through_tls) {
  const tls_server server{signed_for("IP:127.0.0.1")};
  const auto reactor = std::move(net::reactor::start()).value();
  auto options = testing::to_port(0);
  options.where = server.where(ca_file);
  net::channel on{*reactor, options};
  const std::string big(std::size_t{3} << 20U, 'x');
  const auto got = testing::ask(on, big);
  ASSERT_TRUE(is_ok(got));
  EXPECT_EQ(got->size(), big.size());
}

TEST_F(net_tls, refused_certificate_is_told_by_the_channel) {
  const tls_server server{signed_for("DNS:other.test")};
  const auto reactor = std::move(net::reactor::start()).value();
  auto options = testing::to_port(0);
  options.where = server.where(ca_file);
  net::channel on{*reactor, options};
  const auto refused = testing::ask(on, "a");
  ASSERT_TRUE(fails_with(refused, errc::misconfigured));
  EXPECT_NE(refused.error().message().find("certificate was refused"), std::string::npos)
      << refused.error().message();
}

// ---- Without TLS -------------------------------------------------------------------------------------------------

// The default action of SIGPIPE would end the test.
TEST(net_stream, writing_to_a_peer_that_is_gone_is_a_failure_and_no_signal) {
  const testing::temp_dir dir;
  const identity ca{{.subject = "Test CA", .is_ca = true}};
  const identity own{{.subject = "server", .names = "IP:127.0.0.1", .issuer = &ca}};
  for (const bool use_tls : {false, true}) {
    gate go;
    line_server plain{[&](peer&) { go.wait(); }};
    const tls_server secure{own};
    auto where = secure.where(ca.write_certificate(dir.file("ca.pem")));
    where.use_tls = use_tls;
    if (!use_tls) where.port = plain.port();
    auto io =
        std::move(stream::open(where, (*net::endpoints_without_lookup(where))->front())).value();
    ASSERT_EQ(drive(*io, [&] { return io->advance(); }).what, io_result::kind::done);
    io->shutdown();
    EXPECT_TRUE(wait_until([&] {
      const auto sent = io->write("hello\n");
      return sent.what == io_result::kind::failed || sent.what == io_result::kind::closed;
    }));
    go.open();
  }
}

TEST(net_stream, refused_connection_is_a_failure_with_its_reason) {
  address where;
  where.host = "127.0.0.1";
  where.port = testing::free_port();
  const auto answer = talk(where);
  ASSERT_TRUE(fails_with(answer, errc::unavailable));
  EXPECT_EQ(answer.error().message(), "Connection refused");
}

TEST(net_stream, only_names_need_a_lookup) {
  const auto needs = [](const std::string& host) {
    address where;
    where.host = host;
    where.port = 1;
    return !net::endpoints_without_lookup(where).has_value();
  };
  EXPECT_FALSE(needs("127.0.0.1"));
  EXPECT_FALSE(needs("::1"));
  EXPECT_TRUE(needs("localhost"));
  EXPECT_EQ(net::look_up("::1", 80)->front().text, "[::1]:80");
}

TEST(net_stream, a_socket_path_that_is_too_long_is_misconfigured) {
  address where;
  where.is_unix = true;
  where.host = "/" + std::string(200, 'x');
  EXPECT_TRUE(fails_with(*net::endpoints_without_lookup(where), errc::misconfigured));
}

}  // namespace
}  // namespace holdfast
