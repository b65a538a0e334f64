// What a redis: address says, checked.
//
//   redis://[user[:password]@]host[:port][/db][?options]      rediss:// the same over TLS
// unix:/path/to/socket[?options]
//
//   layout=native|setnx|redisson|setnx-expire-lua|getset      how locks look in the store
//   prefix=hf:          of every key (native), or of lock names (the other layouts, where it is empty unless given)
//   semaphore=expirable|plain   of the layout redisson: permits with an owner and a ttl, or without (RSemaphore)
//   db=0                also as the path
// of the layout native only:
//   grace=3s            how long a client's connection may be gone before others may take its locks; 0: never before
//                       the ttl
//   wait_replicas=0     a lock counts as taken only when so many replicas have it ...
//   wait_timeout=1s     ... within this time
// of all:
//   connections=4       for commands, besides the one for messages and renewals (1 with TLS)
//   password_file= password_env=        where the password is
//   ca_file= cert_file= key_file= server_name=    TLS: the authority to trust, our certificate
//                       and key, the name expected of the server
#pragma once

#include "net/stream.hpp"

#include <holdfast/url.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace holdfast::engines::redis {

struct settings {
  net::address where;
  std::string url;  // safe to print
  std::string user, password;
  int db = 0;
  std::string layout;
  std::string prefix;
  bool plain_semaphores = false;
  std::chrono::nanoseconds grace{};
  unsigned connections = 4;
  unsigned wait_replicas = 0;
  std::chrono::milliseconds wait_timeout{};
};

// Rounded up: a grant must not end before it was asked to.
inline std::int64_t in_ms(std::chrono::nanoseconds length) {
  return std::chrono::ceil<std::chrono::milliseconds>(length).count();
}

result<settings> read_settings(const store_url& url);

}  // namespace holdfast::engines::redis
