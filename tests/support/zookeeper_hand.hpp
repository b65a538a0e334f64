// An operator's hand in a ZooKeeper server: a small blocking client for tests, which knows nothing of locks.
//
//   zookeeper_hand hand{server};
//   const auto path = hand.create({.path = "/a-", .data = "x", .mode = jute::create_mode::ephemeral_sequential});
//   EXPECT_EQ(hand.get(path).data, "x");
//   hand.expire(hand.stat("/locks/a/holder")->ephemeral_owner);      // the session of another client
//
// It speaks over the node's plain port, where the node lives, and so reaches also a node that clients are cut off from.
// In an ensemble it lets the node catch up with the leader before it reads. What it sends counts as requests of
// clients, and its session and connection are among those that the server lists. It does not ping: its session ends
// when nothing is asked for as long as its timeout. One thread at a time.
#pragma once

#include "support/zookeeper_server.hpp"

#include "jute/zookeeper.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

// What the server answered instead, by ZooKeeper's name: "NoNode (-101): delete /a". ConnectionLoss: it did not answer.
class zookeeper_error : public std::runtime_error {
 public:
  zookeeper_error(jute::code why, std::string_view doing, std::string_view what);
  jute::code code() const noexcept { return code_; }

 private:
  jute::code code_;
};

class zookeeper_hand {
 public:
  struct options {
    std::size_t node = 0;
    std::chrono::milliseconds timeout{60'000};  // of the session; the server has bounds for it
    std::int64_t session = 0;                   // goes on with that one; 0: a new one
    std::string password{};                     // of that session
  };

  // Throws SessionExpired when the session to go on with is over, or has another password.
  explicit zookeeper_hand(const zookeeper_server& server);
  zookeeper_hand(const zookeeper_server& server, const options& how);
  zookeeper_hand(const zookeeper_hand&) = delete;
  zookeeper_hand& operator=(const zookeeper_hand&) = delete;
  ~zookeeper_hand();  // ends the session, if it can

  std::int64_t session() const noexcept { return session_; }
  const std::string& password() const noexcept { return password_; }
  std::chrono::milliseconds timeout() const noexcept { return timeout_; }  // as granted

  struct node {
    std::string data;
    jute::stat stat;
  };
  std::string create(const jute::creation& what);  // its path, with the number of a sequential one
  void erase(std::string_view path, std::int32_t version = jute::any_version);
  std::optional<jute::stat> stat(std::string_view path);  // none: there is no such node
  node get(std::string_view path);
  jute::stat set(std::string_view path, std::string_view data,
                 std::int32_t version = jute::any_version);
  // Several changes as one; `fill` is given the jute::multi. ok, or why it had no effect.
  jute::code change(const std::function<void(jute::multi&)>& fill);
  std::vector<std::string> children(std::string_view path);  // names, sorted
  // Does the server answer, out of its own memory and whatever it knows of the others?
  bool ping();
  bool remembers(std::string_view path);            // without catching up first
  void log_in(std::string_view user_and_password);  // scheme digest: "user:password"

  // How many nodes there are below, at any depth. 0 when there is no such node; ZooKeeper's own do not count.
  std::size_t count_below(std::string_view path);

  void close();  // ends the session; its ephemeral nodes are gone on return
  void
  hang_up();  // ends the connection alone; the session is left to its timeout, or to a hand that goes on with it

  // Takes the session of another client over and ends it. That client loses its connection and hears, when it is back,
  // that its session expired. False: there is no such session, or it has another password.
  bool end(std::int64_t session, std::string_view password);
  bool expire(std::int64_t session) { return end(session, password_of(session)); }
  // ZooKeeper computes it from the session's number and a constant of its source.
  static std::string password_of(std::int64_t session);

 private:
  class wire;
  void connect(const options& how);
  // The answer, whose views are good until the next question.
  jute::reply exchange(const std::string& request, std::int32_t xid, std::string_view doing,
                       std::string_view what);
  template <class Append>
  jute::reply ask(std::string_view doing, std::string_view what, Append&& append);
  void catch_up();
  std::vector<std::string> names_below(std::string_view path);
  std::size_t count(const std::string& path);

  const zookeeper_server& server_;
  std::size_t node_;
  std::unique_ptr<wire> wire_;  // none: hung up
  std::string frame_;
  std::int32_t last_xid_ = 0;
  std::int64_t session_ = 0;
  std::string password_;
  std::chrono::milliseconds timeout_{};
};

}  // namespace holdfast::testing
