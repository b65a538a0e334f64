// The connections of one client to one service, and its session there.
//
// Requests about a lock go over the connection that its name chooses, in order; renewals over one of their own, so that
// nothing stands in front of them; what only operators ask over a third. One more, the stream, carries what the service
// tells unasked. None of them is the session: that is the service's, which keeps it for the grace after it last heard
// of us, by whatever connection. When it does not know it any more (it was restarted, or we were silent for too
// long), another one is begun, and the request is said again there: in the first one it had no effect.
//
// A request that we have given up must have no effect later on. So each says until when, by the service's clock, it may
// be carried out: for a few seconds at most. For somewhat longer the service remembers the owners that have ended.
//
// A connection whose peer has vanished without a word looks like a slow service. One over which nothing came in for as
// long as a request waited in vain, a second at least, is given up; a renewal does not even wait so long, and is
// repeated on a new one. Each renewal makes the service say something on the stream: if that stays away, it is made
// anew.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/common/session_belief.hpp"
#include "engines/http/messages.hpp"
#include "engines/http/service_clock.hpp"
#include "engines/http/settings.hpp"
#include "engines/http/waits.hpp"
#include "http/http.hpp"
#include "net/channel.hpp"
#include "net/reactor.hpp"

#include <holdfast/engine.hpp>

#include <unistd.h>

#include <atomic>
#include <coroutine>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::http {

enum class line : std::uint8_t { locks, control, views };

struct question {
  std::string_view verb;
  std::string_view name{};  // of the lock, or a prefix: chooses the connection
  message words{};
  line over = line::locks;
  bool at_once = false;  // leaves from the calling thread
  bool repeats = false;  // on a new connection, when one stays silent
};

struct answer {
  reply words;
  steady_time sent;           // before the request was, by the client's clock
  std::uint64_t session = 0;  // of ours with the service, from 1
};

// Called on the reactor's thread.
class link_listener {
 public:
  virtual void on_event(std::string_view name, const reply& words,
                        std::uint64_t session) noexcept = 0;

 protected:
  ~link_listener() = default;
};

class link final : private net::channel_listener {
 public:
  static result<std::unique_ptr<link>> start(const settings& how, const engine_config& config,
                                             link_listener& listener);
  ~link();
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  // Begins the first session, and waits for the first event. Once, before any use. Blocks.
  result<session_begun> open();
  // Ends the session; what is under way completes. Blocks for a moment.
  void close() noexcept;

  // Alive until it is done: `what`.
  operation<answer> ask(const question& what, invocation how);
  // Without waiting for an answer.
  void tell(const question& what) noexcept;

  // Not later than that instant of the service's clock, in our time; the beginning of time when another session has
  // begun, perhaps with another service. And when a session of ours with the service, and the one it has with its
  // store, lived.
  steady_time ours(std::uint64_t session, nanoseconds instant) const;
  session_proof proof(std::uint64_t session, const store_proof& of_store,
                      steady_time of_store_at) const;

  http::waits& waits() noexcept { return waits_; }
  // Of the stream: events of another one may have been lost.
  std::uint64_t stream() const noexcept { return stream_ ? stream_->generation() : 0; }
  who_we_are who() const;
  void saw_owner(std::uint64_t sequence) noexcept;
  void promised(const capabilities& caps) { promised_ = caps; }
  const settings& how() const noexcept { return how_; }

 private:
  class exchanging;
  class opening;
  class opened_wait;
  class forgotten;
  struct state {
    std::string id;
    std::uint64_t number = 0;  // of the last one
    bool is_open = false;
    bool is_opening = false;
    std::uint64_t attempts = 0;  // to open one, that have ended
    error failure{errc::unavailable, {}};
    who_we_are who;
  };

  link(const settings& how, const engine_config& config, link_listener& listener,
       std::unique_ptr<net::reactor> reactor);
  net::channel_options channel_options() const;
  net::channel& of(const question& what) noexcept;
  std::string compose(std::string_view method, std::string_view target, std::string_view body,
                      std::string_view accepts = "application/json") const;
  std::string compose(const question& what, const std::string& id, const call& limits) const;

  operation<void> be_open(std::string_view name, invocation how);
  void begin_opening() noexcept;
  void finish_opening(result<std::string_view> frames, steady_time sent) noexcept;
  result<session_begun> read_opened(std::string_view frames) const;
  void session_is_over(std::uint64_t number) noexcept;
  void check_silence(net::channel& over, std::uint64_t generation, std::uint64_t received,
                     steady_time since) noexcept;
  void check_stream() noexcept;
  void open_stream();
  std::string stream_greeting();
  result<void> judge_stream(std::string_view head);

  void on_push(std::string_view frame) noexcept override;
  void on_up(std::uint64_t generation) noexcept override;
  void on_down(const error& why) noexcept override;

  const settings how_;
  const class clock& clock_;
  link_listener& listener_;
  const pid_t process_ = getpid();
  const std::array<std::uint64_t, 2> client_;
  const std::string host_;
  const std::int64_t pid_;
  std::optional<capabilities> promised_;  // of the first session: no later one may be less

  mutable std::mutex guard_;
  state session_;
  std::optional<session_begun> begun_;  // the first one; its capabilities
  std::uint64_t heard_ = 0;             // of the stream, at the last look
  steady_time heard_at_{};
  unsigned looks_ = 0;  // since then

  session_belief belief_;
  service_clock its_clock_;
  std::atomic<std::uint64_t> newest_{0};  // of all owners that were asked about
  std::atomic<bool> has_events_{false};
  std::atomic<bool> is_closing_{false};

  // Of the reactor's thread.
  std::uint64_t stream_session_ = 0;
  bool stream_is_chunked_ = false;
  holdfast::http::event_reader events_;

  const std::unique_ptr<net::reactor> reactor_;
  http::waits waits_;
  std::unique_ptr<net::channel> stream_, control_, views_;
  std::vector<std::unique_ptr<net::channel>> locks_;
};

}  // namespace holdfast::engines::http
