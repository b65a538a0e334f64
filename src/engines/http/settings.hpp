// What an http: address says, checked.
//
//   http://host[:port][/prefix][?options]      https:// the same over TLS
//   grace=3s            how long the service keeps this client's locks after it last heard of it
//   connections=2       for locks, besides those for renewals, events and views
//   password_file= password_env=        where the key is, which the service calls a key and other stores a password
//   ca_file= cert_file= key_file= server_name=    TLS: the authority to trust, our certificate and its key, the name
//                       expected of the service
#pragma once

#include "net/stream.hpp"

#include <holdfast/result.hpp>
#include <holdfast/url.hpp>

#include <chrono>
#include <string>

namespace holdfast::engines::http {

struct settings {
  net::address where;
  std::string url;          // safe to print
  std::string host;         // as the header Host says it
  std::string prefix;       // of every path: empty, or "/locks"
  std::string credentials;  // as the header Authorization says them; empty: none
  std::chrono::nanoseconds grace{};
  unsigned connections = 2;
};

result<settings> read_settings(const store_url& url);

}  // namespace holdfast::engines::http
