// A TCP proxy on the loopback that stands for a bad network between a client and its server.
//
//   fault_proxy network{server.port()};
//   client::open(network.url("redis"));
//   network.drop(fault_proxy::replies);             // executed, but never heard of
//
// Every switch may be set at any time, from any thread, holds for open and for new connections, and is in force when
// the call returns. As with a real network, a connection never loses bytes from the middle of a stream: once some were
// dropped, that direction of it stays silent for good, and only new connections work again.
#pragma once

#include "support/reserved_port.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

struct pollfd;

namespace holdfast::testing {

class fault_proxy {
 public:
  enum direction : std::uint8_t { requests, replies };  // client to server, server to client

  explicit fault_proxy(std::uint16_t upstream);
  fault_proxy(const fault_proxy&) = delete;
  fault_proxy& operator=(const fault_proxy&) = delete;
  ~fault_proxy();

  std::uint16_t port() const noexcept { return port_.number(); }
  std::string url(std::string_view scheme) const;

  void delay(direction of, std::chrono::nanoseconds by);  // 0: no more
  void drop(direction of, bool on = true);                // silently; the end of the stream as well
  void hold(direction of, bool on = true);                // kept, and delivered when released
  void strand();  // holds the requests of those connected now, until heal(); new connections work
  void freeze(bool on = true);   // holds both directions; a new client waits to be let in
  void trickle(bool on = true);  // one byte at a time, both ways
  void refuse(bool on = true);   // new connections
  void cut();                    // resets every connection now
  void lead_to(
      std::uint16_t upstream);  // new connections: the address has moved; heal() leaves it there
  // Resets the connection on which the n-th byte of reply from now passes, right behind that byte. 0: in front of the
  // first. Happens once.
  void cut_after(std::size_t bytes_of_reply);
  void heal();  // all of the above is off

  std::size_t connections() const;  // so far
  std::size_t open() const;         // at the moment
  // What has arrived from the sender so far, delivered or not: with replies, the server has executed.
  std::size_t bytes(direction of) const;

 private:
  using time_point = std::chrono::steady_clock::time_point;

  struct chunk {
    time_point due;
    std::string bytes;
  };
  struct stream {
    direction which = requests;
    int from = -1;
    int to = -1;
    std::deque<chunk> pending;
    std::size_t queued = 0;
    bool is_blocked = false;  // the receiver takes no more at the moment
    bool is_lossy = false;    // bytes were dropped
    bool is_stranded = false;
    bool has_ended = false;  // the sender has
    bool end_passed_on = false;
  };
  struct connection {
    int client = -1;
    int server = -1;
    std::array<stream, 2> streams;
    bool is_over = false;
  };
  struct faults {
    std::array<std::chrono::nanoseconds, 2> delays{};
    std::array<bool, 2> drops{}, holds{};
    bool frozen = false, trickling = false, refusing = false;
    std::optional<std::size_t> cut_after;
  };

  void run();
  void apply(const std::function<void()>& change);
  void listen();
  void adjust_listener();
  void accept();
  bool holds(const stream& s) const;
  bool wants_input(const stream& s) const;
  std::vector<pollfd> to_poll() const;
  std::optional<time_point> next_due() const;
  void serve(connection& c);
  bool receive(stream& s);
  bool deliver(stream& s);
  bool deliver_some(stream& s);
  std::size_t portion(const stream& s) const;
  void reset(connection& c);
  void sweep();

  const reserved_port port_;
  int wake_ = -1;  // eventfd

  // Guarded by the mutex; the sockets are touched by the proxy's thread only.
  mutable std::mutex guard_;
  std::condition_variable applied_;
  std::uint16_t upstream_;
  faults now_;
  bool cut_now_ = false;
  bool done_ = false;
  std::uint64_t asked_ = 0, rounds_ = 0;
  std::size_t accepted_ = 0;
  std::array<std::size_t, 2> arrived_{};
  std::list<connection> connections_;
  int listener_ = -1;

  std::thread thread_;
};

}  // namespace holdfast::testing
