// gRPC over HTTP/2, as far as a lock client needs it: unary calls and long-lived streams on one connection to one
// server, made anew when it is lost. Knows nothing of locks, of etcd or of protobuf: messages are bytes.
//
// Threads share the connection as those of net::channel do: a blocking call() writes its request itself, and the first
// thread that has nothing else to do reads for all, so an uncontended call makes no thread hop. send() and
// send_now() do not block. Streams and answers that no thread waits for are read by the reactor's thread.
//
// The codes of failure: unavailable when the server has certainly not executed the call (it never had all of it, or it
// said so: GOAWAY below our stream, REFUSED_STREAM), outcome_unknown when it may have, also when the deadline or stop
// came first. A status that the server sent itself is not an error here: it is in the reply, for the caller to judge.
//
// Thread-safe. After fork() every call is refused with misconfigured.
#pragma once

#include "net/channel.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::net {
class reactor;
}

namespace holdfast::grpc {

// The numbers of the gRPC protocol that matter to us.
enum class status : int {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  unauthenticated = 16,
};

struct reply {
  grpc::status status = status::unknown;
  std::string message;  // of the status, percent-decoded
  std::string body;     // one message; empty unless ok
  bool ok() const noexcept { return status == status::ok; }
};

// Completed exactly once, never under a lock.
class reply_handler {
 public:
  virtual void on_reply(result<reply> answer) noexcept = 0;

 protected:
  ~reply_handler() = default;
};

// Of one stream. Called on the reactor's thread, one call at a time per channel, without locks.
class stream_listener {
 public:
  virtual void on_message(std::string_view message) noexcept = 0;
  // The last call: the server ended it (its status), or the connection is gone, or could not be made (an error).
  virtual void on_end(result<reply> why) noexcept = 0;

 protected:
  ~stream_listener() = default;
};

using header_list = std::vector<std::pair<std::string, std::string>>;

struct channel_options {
  net::address where;
  // Instead of `where`, when it is set; which then still names the server inside HTTP/2 (:authority, :scheme).
  net::address_provider find_address;
  std::string description;  // of the server for error sentences, secrets redacted
  nanoseconds connect_timeout = std::chrono::seconds{2};
  // A peer that has vanished without a word looks like a slow one. While something is open, or a call was given up, and
  // nothing at all has come in for half of this, the server is pinged; when nothing comes for the other half either,
  // the connection is dropped.
  nanoseconds longest_silence = std::chrono::seconds{5};
  // Servers drop clients that ping too often. Without an answer of the server in between, we do not ping sooner again
  // than this, whatever the silence; etcd's limit is 5 s.
  nanoseconds ping_interval = std::chrono::milliseconds{5100};
  // How long a lone leader polls before it sleeps. None: what a quorum or a disk has to agree to is never there so
  // soon, and on a small machine the server needs that core.
  nanoseconds spin = nanoseconds::zero();
  std::size_t largest_message = std::size_t{16} << 20U;
};

class channel {
 public:
  channel(net::reactor& on, channel_options options);
  ~channel();  // as net::channel's: all callbacks have run when it returns
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  // `method`: "/etcdserverpb.KV/Txn". `extra` are further header fields ("token", "hasleader"), lower case.
  result<reply> call(std::string_view method, std::string_view request, const header_list& extra,
                     const net::limits& until);
  void send(std::string_view method, std::string_view request, const header_list& extra,
            const net::limits& until, reply_handler& done) noexcept;
  // As send(), but the caller's thread writes at once.
  void send_now(std::string_view method, std::string_view request, const header_list& extra,
                const net::limits& until, reply_handler& done) noexcept;

  // A stream stays until the server ends it, the connection is lost, or cancel() is called; there is no reconnecting of
  // streams here. `listener` stays alive until its on_end(), which comes exactly once, also after cancel() (with the
  // code cancelled), and may come before open_stream() has returned. 0: there is no connection to be had just now.
  using stream_id = std::uint64_t;  // never used twice by one channel, over reconnects too
  stream_id open_stream(std::string_view method, const header_list& extra,
                        stream_listener& listener) noexcept;
  // False: that stream has ended, and the message was not sent. Messages of one stream leave in order.
  bool write(stream_id to, std::string_view message) noexcept;
  void cancel(stream_id which) noexcept;

  // Drops the connection as if the network had; for tests and for a peer that has lost its mind.
  void drop(const error& why) noexcept;
  // Which connection this is (0: none at the moment).
  std::uint64_t generation() const noexcept;

 private:
  class state;
  const std::shared_ptr<state> state_;
};

}  // namespace holdfast::grpc
