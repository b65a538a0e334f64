// What an etcd: address says, checked.
//
//   etcd://[user[:password]@]host[:port][,host[:port]...][/prefix][?options]      etcds:// the same over TLS
//
//   prefix              of every key, without the slash that begins the path; none unless given
//   session=10s         how long the cluster keeps our locks when it hears nothing of us; whole seconds, 1s to 1h
//   password_file= password_env=                  where the password is
//   ca_file= cert_file= key_file= server_name=    TLS: authorities to trust, our certificate, the name expected
#pragma once

#include "net/stream.hpp"

#include <holdfast/url.hpp>

#include <string>
#include <vector>

namespace holdfast::engines::etcd {

struct settings {
  std::vector<net::address> where;
  std::vector<std::string> names;  // of the same, for sentences: "127.0.0.1:2379"
  std::string url;                 // safe to print
  std::string user, password;
  std::string root;  // what every key begins with: "" or "prefix/"
  std::chrono::seconds session{};
};

result<settings> read_settings(const store_url& url);

}  // namespace holdfast::engines::etcd
