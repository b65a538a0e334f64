// What a mysql: address says, checked.
//
//   mysql://[user[:password]@]host[:port]/database[?options]
//
//   socket=/run/mysqld/mysqld.sock   a Unix socket instead of the host's port
//   create=1            make the tables when they are missing (needs the CREATE grant); else `holdfast schema mysql`
//   grace=3s            how long a client's connection may be gone before others may take its locks; 0: never before
//                       the ttl
//   wait=auto|push|poll how waiters learn that it is their turn: told by the releasing client (push), or by asking
//                       ever less often (poll); auto finds out whether the server allows the first
//   connections=8       at most, of each of the two kinds that the pool has
//   password_file= password_env=     where the password is
//   tls=auto|on|off     auto: off for a socket or a loopback address, on otherwise. On means verified: the
//                       certificate and the host's name in it
//   ca_file= cert_file= key_file=    the authority to trust, our certificate and key
#pragma once

#include <holdfast/url.hpp>

#include <cstdint>
#include <string>

namespace holdfast::engines::mysql {

enum class wait_mode : std::uint8_t { find_out, push, poll };

struct settings {
  std::string url;  // safe to print
  std::string host, socket, database, user, password;
  unsigned port = 3306;
  bool use_tls = false;
  std::string ca, certificate, key;
  bool create = false;
  std::chrono::nanoseconds grace{};
  wait_mode wait = wait_mode::find_out;
  unsigned connections = 8;
};

result<settings> read_settings(const store_url& url);

}  // namespace holdfast::engines::mysql
