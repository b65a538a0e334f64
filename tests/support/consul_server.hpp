// Real Consul servers for a test, one or a cluster, in a folder of their own.
//
//   if (const auto consul = consul_server::available(); !consul) GTEST_SKIP() << consul.why;
//   consul_server cluster{{.nodes = 3}};
//   client::open(cluster.url() + "/locks");
//   cluster.stop(cluster.leader());                  // SIGSTOP
//   EXPECT_EQ(cluster.find("locks/stock/.lock")->session, "");
//
// Every node is a server and an agent that clients talk to. The data are in memory (/dev/shm) where that is possible,
// and outlive a kill. Elections come at twice the quickest pace that Consul has: a test machine is busy. Its smallest
// session stays what it is, 10 s; a session that is not renewed ends after twice its time.
//
// Measured on two cores, Consul 1.8.7 (a session can be made: the last that works after a start):
//
//   one node                        1.3 s to 2.0 s   (nearly all of it the wait for an election that nobody else wants)
//   three nodes                     1.7 s
//   another leads, leader killed    3.2 s
//   another leads, leader stopped   2.6 s
#pragma once

#include "support/certificates.hpp"
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

class consul_server {
 public:
  struct options {
    std::size_t nodes = 1;
    bool tls = false;                  // for clients; among themselves the nodes speak plainly
    bool client_certificates = false;  // with tls: a client without one is sent away
    // The names that the certificate is for; or the very files, in `certificate`, with the authority's in `ca_file`.
    std::string certified = "DNS:localhost,IP:127.0.0.1";
    std::optional<holdfast::testing::certificate> certificate{};
    std::string ca_file{};
    // Not empty: whoever comes without a token may do nothing, and this one may do everything.
    std::string master_token{};
    // JSON objects that are read after ours, for every node: R"({"limits": {"http_max_conns_per_client": 4}})".
    std::vector<std::string> config{};
  };

  // Is there a consul? Where HOLDFAST_CONSUL says, in the PATH, or where tools/fetch-consul has put it.
  static availability available();
  static std::string program();  // REQUIRES: available()

  // Returns when sessions can be made at all nodes. Throws, with what the servers printed, when they cannot.
  consul_server();
  explicit consul_server(options how);
  consul_server(const consul_server&) = delete;
  consul_server& operator=(const consul_server&) = delete;
  ~consul_server();

  // consul://127.0.0.1:PORT,127.0.0.1:PORT and so on for all nodes, or for one; consuls:// over TLS. No token, no
  // prefix.
  std::string url() const;
  std::string url(std::size_t node) const;
  std::size_t nodes() const noexcept { return nodes_.size(); }
  std::uint16_t port(std::size_t node = 0) const;
  // Speaks plainly also when clients need TLS. For the operator.
  std::uint16_t plain_port(std::size_t node = 0) const { return nodes_.at(node)->http.number(); }
  const std::string& ca_file() const noexcept { return how_.ca_file; }    // tls
  const certificate_authority& authority() const { return *authority_; }  // tls
  pid_t pid(std::size_t node = 0) const { return nodes_.at(node)->server.pid(); }
  std::string log(std::size_t node = 0) const;  // what it printed so far: warnings and errors
  bool is_up(std::size_t node) const { return nodes_.at(node)->is_up(); }  // and not stopped

  // ---- what happens to nodes
  void stop(std::size_t node = 0);     // SIGSTOP: connections stay open, nothing answers
  void resume(std::size_t node = 0);   // SIGCONT: it first executes all that has arrived meanwhile
  void kill(std::size_t node = 0);     // SIGKILL
  void restart(std::size_t node = 0);  // kills it first when it runs; returns when it answers
  void kill_all();
  void restart_all();
  // The node that leads, as soon as the running ones agree on one.
  std::size_t leader() const;
  // Does it answer a consistent read?
  bool is_healthy(std::size_t node) const;

  // ---- the operator's hand: plain HTTP, with the master token if there is one
  struct reply {
    int status = 0;
    std::string body;
  };
  // Of one node. Nothing when it does not answer.
  std::optional<reply> try_ask(std::size_t node, std::string_view method, std::string_view path,
                               std::string_view body = {}) const;
  // Of the first node that answers with 200, or with 404. Throws when none does in time.
  reply ask(std::string_view method, std::string_view path, std::string_view body = {}) const;

  struct key_value {
    std::string key, value;
    std::uint64_t flags = 0;
    std::string session;  // empty: nobody has it
    std::uint64_t create_index = 0, modify_index = 0, lock_index = 0;
  };
  std::optional<key_value> find(const std::string& key) const;
  std::vector<key_value> all(const std::string& prefix) const;  // in the order of creation
  std::vector<std::string> keys(const std::string& prefix) const;
  void put(const std::string& key, const std::string& value) const;  // whoever has it
  void erase(const std::string& key) const;                          // the same

  struct session_options {
    std::chrono::seconds ttl{600};
    std::chrono::milliseconds lock_delay{0};
    bool deletes = false;  // its keys go with it; else they are let go
  };
  std::string make_session() const { return make_session(session_options{}); }
  std::string make_session(const session_options& how) const;
  void destroy_session(const std::string& id) const;
  std::vector<std::string> sessions() const;
  // Was it to be had?
  bool lock(const std::string& key, const std::string& session, const std::string& value = {},
            std::uint64_t flags = lock_flags) const;
  void unlock(const std::string& key, const std::string& session) const;
  // What `consul lock` writes to the keys of its locks, and of its semaphores.
  static constexpr std::uint64_t lock_flags = 0x2ddccbc058a50c18;
  static constexpr std::uint64_t semaphore_flags = 0xe0f69a2baa414de0;

  // With these rules: `key_prefix "locks/" { policy = "write" }`. REQUIRES: a master token.
  std::string make_token(const std::string& rules) const;
  void erase_token(const std::string& secret) const;

  // How many requests clients have had answered since the start, over the nodes that run; our own questions do not
  // count. A blocking query counts when it ends.
  std::uint64_t requests() const;

 private:
  struct member {
    reserved_port http, https, rpc, serf;
    std::string folder;  // configuration and data
    process server;
    bool is_stopped = false;
    std::atomic<std::uint64_t> questions{0};  // that count among the requests
    bool is_up() const noexcept { return server.pid() > 0 && !is_stopped; }
  };

  std::string name(std::size_t n) const { return "n" + std::to_string(n); }
  std::string config(std::size_t n) const;
  void launch(std::size_t n);
  void await_health(std::size_t n);
  bool grants_sessions(std::size_t n) const;
  std::optional<std::size_t> leader_seen_by(std::size_t n) const;
  std::vector<key_value> read(const std::string& path) const;

  options how_;
  temp_dir dir_;   // certificates, what was printed
  temp_dir data_;  // in memory
  std::unique_ptr<certificate_authority> authority_;
  std::vector<std::unique_ptr<member>> nodes_;
};

// One server, and one cluster of three, for all tests of this process, started when first asked for. Ask on the main
// thread, see process.hpp.
consul_server& shared_consul();
consul_server& shared_consul3();

}  // namespace holdfast::testing
