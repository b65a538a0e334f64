// What the transport (listener.cpp, the one file with Asio) and the handlers have to say to each other.
//
// One thread, the loop, runs all handlers and owns all state of the service: no state of this folder has a mutex but
// the way to the loop itself (serve.cpp). What blocks (listing a remote store, say) goes to loop::work. Everything
// below is called on the loop, unless it says otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::server {

// A request that has arrived whole, within its limits. The views live as long as the exchange.
struct request {
  std::string_view method;  // "GET"
  std::string_view target;  // as sent: path and query, not decoded
  std::string_view body;    // gone when the handler has returned
  std::vector<std::pair<std::string_view, std::string_view>> headers;  // names as sent
  bool from_this_machine = false;  // the peer is a loopback address

  std::string peer;  // its address, without the port
  // Of the first that is called so, in whatever case; empty: not there.
  std::string_view header(std::string_view lower_case_name) const noexcept;
};

struct response {
  int status = 200;
  std::string_view content_type = "application/json";  // a literal
  std::string body;
  std::vector<std::pair<std::string_view, std::string>> headers{};  // names are literals
};

// Events that many clients get, in one piece.
class event_batch {
 public:
  void add(std::string_view event, std::string data) {
    wire_.append("event: ").append(event).append("\ndata: ").append(data).append("\n\n");
    events_.emplace_back(event, std::move(data));
  }
  bool empty() const noexcept { return events_.empty(); }
  const std::vector<std::pair<std::string, std::string>>& events() const noexcept {
    return events_;
  }
  const std::string& wire() const noexcept { return wire_; }

 private:
  std::vector<std::pair<std::string, std::string>> events_;
  std::string wire_;
};

// Server-sent events to one client. Bounded: a client that reads too slowly is cut off, never waited for.
class event_stream {
 public:
  virtual ~event_stream() = default;
  // False: too much waits to be sent already; nothing was queued. `data` is one line.
  virtual bool send(std::string_view event, std::string_view data) = 0;
  virtual bool send(const event_batch& batch) = 0;
  // From now on its client may count on a lease for as long as this lives. So when it has ended, the connection stays
  // until the client must know of that.
  virtual void carries_lease() = 0;
  // How long the connection lives at least when nothing comes from its client any more: connection_silence, less the
  // time that the client has left unacknowledged what it was sent.
  virtual std::chrono::nanoseconds lives_for() const = 0;
  // Sends what is queued, and one more event unless it is empty, then ends the answer.
  virtual void finish(std::string_view event = {}, std::string_view data = {}) = 0;
};

// One request and its one answer. Kept by whoever will answer; if all let go without an answer, the client gets a 500.
class exchange {
 public:
  virtual ~exchange() = default;
  virtual const request& asked() const noexcept = 0;
  // Requested when the client goes away before the answer, or while a stream is open. Callbacks run on the loop.
  virtual std::stop_token gone() const noexcept = 0;
  // Exactly one of the two, once. May be called before the handler returns.
  virtual void respond(response answer) = 0;
  virtual std::shared_ptr<event_stream> stream() = 0;
};

// What has not run yet is cancelled by destroying its timer.
class timer {
 public:
  virtual ~timer() = default;
};

class loop {
 public:
  virtual ~loop() = default;
  // From any thread: runs `what` on the loop, soon. Dropped when the loop has ended.
  virtual void post(std::function<void()> what) = 0;
  virtual std::unique_ptr<timer> after(std::chrono::nanoseconds delay,
                                       std::function<void()> what) = 0;
  // When the descriptor can be read. Takes it over, and closes it in the end. Null: the system has no room for one
  // more.
  virtual std::unique_ptr<timer> when_readable(int descriptor, std::function<void()> what) = 0;
  // Runs `blocking` on a thread of a small pool, then `then` on the loop. False: most_work of them wait or run already;
  // nothing was queued.
  static constexpr std::size_t most_work = 256;
  virtual bool work(std::function<void()> blocking, std::function<void()> then) = 0;
};

// A connection is closed when something that was sent is not acknowledged for this time, and not sooner. It counts from
// the oldest such byte: see event_stream::lives_for.
inline constexpr std::chrono::seconds connection_silence{10};

using handler = std::function<void(const std::shared_ptr<exchange>&)>;

}  // namespace holdfast::server
