// What a zk: address says, checked.
//
//   zk://[user[:password]@]host[:port][,host[:port]...][/chroot][?options]      zks:// the same over TLS
//
//   chroot              the node below which all locks lie; it must exist. The root of the tree unless given
//   session=10s         how long the ensemble keeps our locks when it hears nothing of us; the server may give another
//   layout=curator      whose locks we share: curator, kazoo, go-zk; or exclusive, one plain node per lock
//   latch=count         what a latch is to other programs: Curator's SharedCount, or with latch=barrier its
//                       DistributedBarrier, a node that is there until the latch opens
//   acl=creator|open    who may touch our nodes: the logged-in user only (with a login), or everybody (without)
//   password_file= password_env=                  where the password is
//   ca_file= cert_file= key_file= server_name=    TLS: authorities to trust, our certificate, the name expected
#pragma once

#include "engines/zk/node_names.hpp"
#include "net/stream.hpp"

#include <holdfast/url.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace holdfast::engines::zk {

struct settings {
  std::vector<net::address> where;
  std::vector<std::string> names;  // of the same, for sentences: "127.0.0.1:2181"
  std::string url;                 // safe to print
  std::string user, password;      // digest
  std::string root;                // "" or "/locks": what every path begins with
  std::chrono::milliseconds session{};
  const layout* nodes = nullptr;
  bool is_open_to_all = false;
  bool latch_is_barrier = false;

  bool is_logged_in() const noexcept {
    return !user.empty() || !where.front().tls.certificate.empty();
  }
};

result<settings> read_settings(const store_url& url);

}  // namespace holdfast::engines::zk
