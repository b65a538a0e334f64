// Real ZooKeeper servers for a test, one or an ensemble, in a folder of their own.
//
//   if (const auto zookeeper = zookeeper_server::available(); !zookeeper) GTEST_SKIP() << zookeeper.why;
//   zookeeper_server ensemble{{.nodes = 3}};
//   client::open(ensemble.url());
//   ensemble.stop(ensemble.leader());                // SIGSTOP
//   EXPECT_EQ(ensemble.metric("zk_watch_count"), 0);
//
// The data are in memory (/dev/shm) where that is possible, are not fsynced, and outlive a kill. Ticks are an eighth of
// the usual ones, so sessions of 500 ms to a minute are granted (the server rounds their end up to a tick).
//
// Every test has a server of its own, so the start counts. Measured on two cores, ZooKeeper 3.8.0, Java 17:
//
//   one node answers               0.3 s   (0.36 s of processor; without the archive of classes 0.4 s and 0.5 s)
//   three nodes answer             1.0 s   (1.6 s of processor; without the archive 1.2 s and 2.0 s)
//   one node with TLS answers      0.7 s
//   another leads, leader killed   0.4 s   (of which 0.2 s are a wait for more votes that no setting shortens)
//   another leads, leader stopped  2.3 s   (sync_limit ticks, then the same)
//
// Shorter intervals between votes change nothing as long as all nodes hear each other.
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

class zookeeper_server {
 public:
  struct options {
    std::size_t nodes = 1;
    std::chrono::milliseconds tick{250};
    // In ticks. A follower that cannot join the leader in the first, and one that hears nothing from it for the second,
    // begins an election; so does a leader without a majority of followers.
    int init_limit = 40;
    int sync_limit = 8;
    // What a client asks for beyond these is cut down, or raised, to them.
    std::chrono::milliseconds session_min{500};
    std::chrono::milliseconds session_max{60'000};
    bool tls = false;                  // for clients; among themselves the nodes speak plainly
    bool client_certificates = false;  // with tls: a client without one is sent away
    // The names that the certificate is for; or the very files, in `certificate`, with the authority's in `ca_file`.
    std::string certified = "DNS:localhost,IP:127.0.0.1";
    std::optional<holdfast::testing::certificate> certificate{};
    std::string ca_file{};
    // The four-letter words that are answered. Without `srvr` a server never counts as healthy.
    std::string four_letter_words = "*";
    // Lines of zoo.cfg, for every node; they win over ours: "maxClientCnxns=2".
    std::vector<std::string> config{};
    // Of java's command line, for every node: "-Djute.maxbuffer=4096",
    // "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:...".
    std::vector<std::string> flags{};
    // Node n lives at its place n, and the operator at its hub. None: all of them at the loopback of this machine.
    const network_lab* network = nullptr;
    bool class_archive = true;  // start with classes that were loaded once before and kept
  };

  // Are there java and ZooKeeper? Debian's, or the jar that HOLDFAST_ZOOKEEPER_JAR names, with all that lie beside it.
  static availability available();

  // Returns when all nodes answer. Throws, with what the servers printed, when they do not.
  zookeeper_server();
  explicit zookeeper_server(options how);
  zookeeper_server(const zookeeper_server&) = delete;
  zookeeper_server& operator=(const zookeeper_server&) = delete;
  ~zookeeper_server();

  // zk://127.0.0.1:PORT,127.0.0.1:PORT and so on for all nodes, or for one; zks:// over TLS. No credentials, no chroot.
  // With the addresses of the network, if there is one.
  std::string url() const;
  std::string url(std::size_t node) const;
  std::size_t nodes() const noexcept { return nodes_.size(); }
  std::uint16_t port(std::size_t node = 0) const { return nodes_.at(node)->client.number(); }
  // Speaks plainly also when clients need TLS. For the operator: four-letter words and the like.
  std::uint16_t plain_port(std::size_t node = 0) const;
  const std::string& ca_file() const noexcept { return how_.ca_file; }    // tls
  const certificate_authority& authority() const { return *authority_; }  // tls
  pid_t pid(std::size_t node = 0) const { return nodes_.at(node)->server.pid(); }
  std::string log(std::size_t node = 0) const;  // what it printed so far: warnings and errors
  bool is_up(std::size_t node) const { return nodes_.at(node)->is_up(); }  // and not stopped
  const std::string& folder(std::size_t node = 0) const { return nodes_.at(node)->folder; }
  // Runs it where the node lives: there its plain port is on the loopback.
  template <class Act>
  decltype(auto) at(std::size_t node, Act&& act) const {
    return how_.network == nullptr ? act() : how_.network->at(node, act);
  }

  // ---- what happens to nodes
  void stop(std::size_t node = 0);     // SIGSTOP: connections stay open, nothing answers
  void resume(std::size_t node = 0);   // SIGCONT: it first executes all that has arrived meanwhile
  void kill(std::size_t node = 0);     // SIGKILL
  void restart(std::size_t node = 0);  // kills it first when it runs; returns when it answers
  void kill_all();
  void restart_all();
  void restart_with(
      std::vector<std::string> config);  // all, with these lines instead of those before
  // The node that leads, as soon as one of the running ones does. A single server leads itself.
  std::size_t leader() const;
  // Does it serve clients? In an ensemble: is it part of a majority, as far as it knows?
  bool is_healthy(std::size_t node) const;

  // ---- the operator's questions
  // "srvr", "mntr", "cons", "dump" and so on. Empty when the node does not answer.
  std::string four_letter(std::size_t node, std::string_view word) const;
  // A counter of `mntr`, of one node or summed over those that run: "zk_watch_count". 0 when there is none.
  std::int64_t metric_of(std::size_t node, std::string_view name) const;
  std::int64_t metric(std::string_view name) const;
  // How many packets clients have sent since the nodes answered; pings count, our own questions do not.
  std::int64_t requests() const;

 private:
  struct member {
    reserved_port client, plain, quorum, election;
    std::string folder;  // configuration and data
    process server;
    bool is_stopped = false;
    std::atomic<std::int64_t> questions{0};  // those that it counts as packets of clients
    bool is_up() const noexcept { return server.pid() > 0 && !is_stopped; }
  };

  static std::string class_archive();
  static void make_class_archive(const std::string& file);
  std::string name(std::size_t n) const { return "n" + std::to_string(n); }
  std::string host(std::size_t n) const;
  std::string endpoint(std::size_t n) const;
  void prepare_tls();
  std::string config(std::size_t n) const;
  std::string tls_config(std::size_t n) const;
  std::vector<std::string> command(std::size_t n) const;
  void launch(std::size_t n);
  void await_health(std::size_t n);
  std::string ask(std::size_t n, std::string_view word, std::chrono::milliseconds limit) const;
  std::string mode(std::size_t n) const;

  options how_;
  temp_dir dir_;   // certificates, what was printed
  temp_dir data_;  // in memory
  std::unique_ptr<certificate_authority> authority_;
  std::vector<std::unique_ptr<member>> nodes_;
};

// One server, and one ensemble of three, for all tests of this process, started when first asked for. Ask on the main
// thread, see process.hpp.
zookeeper_server& shared_zookeeper();
zookeeper_server& shared_zookeeper3();

}  // namespace holdfast::testing
