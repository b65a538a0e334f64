#include "server/options.hpp"

#include "support/expect.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::server {
namespace {

using namespace std::chrono_literals;
using testing::fails_with;
using testing::is_ok;

TEST(serve_options, an_address_may_leave_its_port_or_its_host_out) {
  struct row {
    const char* text;
    const char* host;
    std::uint16_t port;
  };
  for (const auto& [text, host, port] : std::vector<row>{{"127.0.0.1:80", "127.0.0.1", 80},
                                                         {"[::1]:81", "::1", 81},
                                                         {"[::1]", "::1", 7420},
                                                         {"localhost", "localhost", 7420},
                                                         {":82", "127.0.0.1", 82},
                                                         {"0.0.0.0:0", "0.0.0.0", 0}}) {
    options of;
    EXPECT_TRUE(is_ok(set(of, "listen", text))) << text;
    EXPECT_EQ(of.listen.host, host) << text;
    EXPECT_EQ(of.listen.port, port) << text;
  }
}

TEST(serve_options, everything_fits_into_the_files_that_there_are) {
  options many;
  fit(many, 1U << 20U, false);
  EXPECT_EQ(many.connections, 20'000U);
  EXPECT_EQ(many.sessions, 2'000U);
  EXPECT_EQ(many.processes, 1'000U);
  for (const std::size_t files : {64U, 256U, 1'024U, 4'096U, 20'000U, 65'536U})
    for (const bool is_embedded : {false, true}) {
      options of;
      fit(of, files, is_embedded);
      const auto used = of.connections + of.processes + of.sessions * (is_embedded ? 2 : 20);
      EXPECT_LT(used, files);
      EXPECT_GE(of.connections, std::min<std::size_t>(files / 4, 20'000));
    }
  options few;
  few.connections = 5;
  fit(few, 65'536, true);
  EXPECT_EQ(few.connections, 5U) << "what was asked for";
}

TEST(serve_options, what_is_no_value_is_refused_with_the_name_of_the_setting) {
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"listen", "[::1"},
                                                        {"listen", "[::1]80"},
                                                        {"listen", "::1:80"},
                                                        {"listen", "h:65536"},
                                                        {"listen", "h:-1"},
                                                        {"listen", "h:80x"},
                                                        {"connections", "0"},
                                                        {"connections", "-1"},
                                                        {"connections", "10000001"},
                                                        {"leases-per-key", "many"},
                                                        {"waiters-per-key", "1.5"},
                                                        {"watchers", ""},
                                                        {"request-time", "0s"},
                                                        {"request-time", "25h"},
                                                        {"idle-time", "forever"},
                                                        {"tls-cert", ""},
                                                        {"nonsense", "1"},
                                                        {"", "1"}}) {
    options of;
    const auto done = set(of, name, value);
    EXPECT_TRUE(fails_with(done, errc::misconfigured)) << name << " = " << value;
    if (!done) {
      EXPECT_NE(done.error().message().find(name), std::string::npos) << name;
    }
  }
}

TEST(serve_options, a_file_says_the_same_as_the_flags) {
  testing::temp_dir folder;
  const auto file = folder.file("config");
  std::ofstream{file}
      << "# comment\n\n  listen = [::1]:9\r\nleases-per-key=3\n"
         "request-time =\t250ms\nhost = A.example,,b.example\nstore = file:/x?y=z\n";
  options of;
  ASSERT_TRUE(is_ok(read_config(of, file)));
  EXPECT_EQ(of.listen.host, "::1");
  EXPECT_EQ(of.listen.port, 9);
  EXPECT_EQ(of.leases_per_key, 3U);
  EXPECT_EQ(of.request_time, 250ms);
  EXPECT_EQ(of.hosts, (std::vector<std::string>{"a.example", "b.example"}));
  EXPECT_EQ(of.store, "file:/x?y=z");
}

TEST(serve_options, a_line_that_is_none_is_named) {
  testing::temp_dir folder;
  const auto file = folder.file("config");
  std::ofstream{file} << "watchers = 3\nwatchers\n";
  options of;
  const auto read = read_config(of, file);
  ASSERT_TRUE(fails_with(read, errc::misconfigured));
  EXPECT_NE(read.error().message().find("line 2"), std::string::npos) << read.error().message();
  EXPECT_TRUE(fails_with(read_config(of, folder.file("none")), errc::misconfigured));
}

TEST(serve_options, loopback_is_what_no_other_machine_can_reach) {
  for (const auto* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
    EXPECT_TRUE(is_loopback({host, 1})) << host;
  for (const auto* host : {"0.0.0.0", "::", "10.0.0.1", "192.168.1.127", "127.example", "fe80::1",
                           "127.0.0.1.example", "localhost.example", ""})
    EXPECT_FALSE(is_loopback({host, 1})) << host;
}

TEST(serve_options, open_to_others_only_with_keys_and_tls) {
  const auto judged = [](const std::string& host, bool keys, bool tls) {
    options of;
    of.listen.host = host;
    if (keys) of.keys = "keys";
    if (tls) of.tls_cert = of.tls_key = "file.pem";
    return check(of);
  };
  for (const bool keys : {false, true})
    for (const bool tls : {false, true}) {
      EXPECT_TRUE(is_ok(judged("127.0.0.1", keys, tls)));
      if (keys && tls)
        EXPECT_TRUE(is_ok(judged("0.0.0.0", keys, tls)));
      else
        EXPECT_TRUE(fails_with(judged("0.0.0.0", keys, tls), errc::misconfigured));
    }
  EXPECT_NE(judged("0.0.0.0", false, false).error().message().find("--keys"), std::string::npos);
}

TEST(serve_options, the_files_of_tls_go_together) {
  options cert, key, authority;
  cert.tls_cert = "a.pem";
  key.tls_key = "a.pem";
  authority.client_ca = "a.pem";
  for (const auto* of : {&cert, &key, &authority})
    EXPECT_TRUE(fails_with(check(*of), errc::misconfigured));
}

}  // namespace
}  // namespace holdfast::server
