// Real etcd servers for a test, one or a cluster, in a folder of their own.
//
//   if (const auto etcd = etcd_server::available(); !etcd) GTEST_SKIP() << etcd.why;
//   etcd_server cluster{{.nodes = 3}};
//   client::open(cluster.url());
//   cluster.stop(cluster.leader());                  // SIGSTOP
//   EXPECT_EQ(cluster.etcdctl({"get", "a", "--print-value-only"}), "b");
//
// The data are in memory (/dev/shm) where that is possible: etcd 3.4 cannot be told not to fsync, and a machine's
// death is not what is tested. They outlive a kill. Heartbeats and elections come at twice the usual pace, so a
// cluster is up in a second and a leader replaced in less; the smallest ttl that such a server grants is 1 s (2 s at
// the usual pace).
#pragma once

#include "support/certificates.hpp"
#include "support/network_lab.hpp"
#include "support/process.hpp"
#include "support/required.hpp"
#include "support/reserved_port.hpp"
#include "support/temp_dir.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

class etcd_server {
 public:
  struct options {
    std::size_t nodes = 1;
    std::chrono::milliseconds heartbeat{50};
    std::chrono::milliseconds election{500};
    bool tls = false;                  // for clients; among themselves the nodes speak plainly
    bool client_certificates = false;  // with tls: a client without one is sent away
    // The names that the certificate is for; or the very files, in `certificate`, with the authority's in `ca_file`.
    std::string certified = "DNS:localhost,IP:127.0.0.1";
    std::optional<holdfast::testing::certificate> certificate{};
    std::string ca_file{};
    // Of the command line, for every node: "--quota-backend-bytes=...", "--auth-token-ttl=1".
    std::vector<std::string> flags{};
    // Node n lives at its place n, and the operator at its hub. None: all of them at the loopback of this machine.
    const network_lab* network = nullptr;
  };

  // Are there etcd and etcdctl? From the PATH, or etcd from where HOLDFAST_ETCD_SERVER says.
  static availability available();

  // Returns when all nodes answer. Throws, with what the servers printed, when they do not.
  etcd_server();
  explicit etcd_server(options how);
  etcd_server(const etcd_server&) = delete;
  etcd_server& operator=(const etcd_server&) = delete;
  ~etcd_server();

  // etcd://127.0.0.1:PORT,127.0.0.1:PORT and so on for all nodes, or for one; etcds:// over TLS. No credentials. With
  // the addresses of the network, if there is one.
  std::string url() const;
  std::string url(std::size_t node) const;
  std::size_t nodes() const noexcept { return nodes_.size(); }
  std::uint16_t port(std::size_t node = 0) const { return nodes_.at(node)->client.number(); }
  const std::string& ca_file() const noexcept { return how_.ca_file; }    // tls
  const certificate_authority& authority() const { return *authority_; }  // tls
  pid_t pid(std::size_t node = 0) const { return nodes_.at(node)->server.pid(); }
  std::string log(std::size_t node = 0) const;  // what it printed so far

  // ---- what happens to nodes
  void stop(std::size_t node = 0);     // SIGSTOP: connections stay open, nothing answers
  void resume(std::size_t node = 0);   // SIGCONT: it first executes all that has arrived meanwhile
  void kill(std::size_t node = 0);     // SIGKILL
  void restart(std::size_t node = 0);  // kills it first when it runs; returns when it answers
  void kill_all();
  void restart_all();
  void restart_with(std::vector<std::string> flags);  // all, with these instead of those before
  // Removes the member for good and lets an empty one join in its place, at the same addresses.
  void replace(std::size_t node);
  // The node that leads, as soon as the running ones agree on one.
  std::size_t leader() const;
  bool has_leader(std::size_t node) const;
  // Does it answer a linearizable read?
  bool is_healthy(std::size_t node) const;

  // ---- the operator's hand: etcdctl, over the nodes that run and are not cut off; as root once there is one
  struct outcome {
    std::optional<int> code;  // none: it did not end in time
    std::string said;
  };
  outcome try_etcdctl(const std::vector<std::string>& words,
                      std::chrono::nanoseconds limit = std::chrono::seconds{20}) const;
  // What it printed, without the last line end. Throws when it fails.
  std::string etcdctl(const std::vector<std::string>& words) const;
  // The same, asking that node only, from where it lives.
  std::string etcdctl_at(std::size_t node, const std::vector<std::string>& words) const;
  // The command line up to the words, for tests that run it themselves (etcdctl lock).
  std::vector<std::string> etcdctl_command(const std::vector<std::string>& words) const;

  // From now on every client needs a password: as root (`root`), or as `user`, which may do everything with the keys
  // that begin with `prefix` and nothing with others.
  void enable_auth(const std::string& user, const std::string& password, const std::string& prefix);

  struct key_value {
    std::string key;
    std::int64_t create_revision = 0;
    std::int64_t mod_revision = 0;
    std::string value;
    std::int64_t lease = 0;
  };
  std::vector<key_value> all(const std::string& prefix) const;  // in the order of creation
  std::vector<std::string> keys(const std::string& prefix) const;
  std::int64_t revision() const;
  void put(const std::string& key, const std::string& value) const;
  void erase(const std::string& key) const;
  void revoke(std::int64_t lease) const;
  std::vector<std::int64_t> leases() const;
  // Forgets all revisions but the newest: a watch that is to begin before it is refused.
  void compact() const;

  // ---- counters of the servers, summed over the nodes that run: "etcd_mvcc_put_total",
  // "grpc_server_msg_received_total{grpc_method=\"Txn\"" (all whose line begins so)
  double metric(std::string_view begin) const;
  double metric_of(std::size_t node, std::string_view begin) const;
  // How many messages clients have sent, of all calls and streams.
  std::uint64_t requests() const;

 private:
  struct member {
    reserved_port client, peer, metrics;
    std::string data;
    process server;
    bool is_stopped = false;
    bool is_up() const noexcept { return server.pid() > 0 && !is_stopped; }
  };

  std::string name(std::size_t n) const { return "n" + std::to_string(n); }
  std::string host(std::size_t n) const;
  std::string endpoint(std::size_t n) const;  // for clients
  std::string peer_url(std::size_t n) const;
  // Runs it where the node lives, or at the hub.
  template <class Act>
  decltype(auto) at(std::size_t n, Act&& act) const {
    return how_.network == nullptr ? act() : how_.network->at(n, act);
  }
  std::string endpoints() const;
  std::vector<std::string> command_over(const std::string& endpoints,
                                        const std::vector<std::string>& words) const;
  outcome run(std::size_t place, const std::vector<std::string>& command,
              std::chrono::nanoseconds limit) const;
  std::string cluster() const;
  std::vector<std::string> command(std::size_t n, const char* state) const;
  void launch(std::size_t n, const char* state = "new");
  void await_health(std::size_t n);
  std::optional<std::string> http_get(std::size_t n, std::string_view path) const;

  options how_;
  temp_dir dir_;   // certificates, what was printed
  temp_dir data_;  // in memory
  std::unique_ptr<certificate_authority> authority_;
  certificate server_, operator_;
  bool has_auth_ = false;
  mutable std::atomic<unsigned> commands_{0};
  std::vector<std::unique_ptr<member>> nodes_;
};

// One server, and one cluster of three, for all tests of this process, started when first asked for. Ask on the main
// thread, see process.hpp.
etcd_server& shared_etcd();
etcd_server& shared_etcd3();

}  // namespace holdfast::testing
