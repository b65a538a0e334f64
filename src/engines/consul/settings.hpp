// What a consul: address says, checked.
//
//   consul://host[:port][,host[:port]...][/prefix][?options]      consuls:// the same over TLS
//
//   prefix              of every key, without the slash that begins the path; "holdfast" unless given
//   session=10s         how long Consul keeps our locks at least when it hears nothing of us; whole seconds, 10s (less
//                       is refused by Consul) to 24h
//   lock_delay=10s      for how long no client gets what a session had that ended without giving it back; 0s to 60s. As
//                       long as the session unless given (60s at most): Consul ends sessions early when their node goes
//   behavior=delete     what becomes of our keys when our session ends: delete or release
//   dc=                 the datacenter; the agent's own unless given
//   password_file= password_env=                  where the ACL token is
//   ca_file= cert_file= key_file= server_name=    TLS: authorities to trust, our certificate, the name expected
#pragma once

#include "engines/common/store_address.hpp"

#include <holdfast/types.hpp>
#include <holdfast/url.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace holdfast::engines::consul {

struct settings {
  std::vector<member_address> where;
  bool use_tls = false;
  std::string url;    // safe to print
  std::string token;  // a secret; empty: none
  std::string datacenter;
  std::string root;  // what every key begins with: "prefix/"
  std::chrono::seconds session{};
  nanoseconds lock_delay{};
  bool keys_are_deleted = true;  // with the session; else released
};

result<settings> read_settings(const store_url& url);

}  // namespace holdfast::engines::consul
