// One multiplexed connection to a server, and how threads and coroutines share it.
//
// The caller writes, and the first idle thread reads for all. A blocking exchange() appends its request, writes what is
// to be written (one thread at a time; the others' bytes go along) and then reads: the first thread that has nothing
// else to do becomes the leader, reads for all, and hands the lead on when its own answer is there. So an uncontended
// exchange makes no thread hop, and a lone one does not even sleep (it spins for a while if spinning is allowed).
// send() is for callers that must not block: the reactor's thread writes, reads and completes. send_now() writes at
// once and leaves the answer to the next thread that reads; if none does, the reactor fetches it within a few
// milliseconds.
//
// Answers come in the order of the requests. A call whose deadline passes is abandoned: its late reply is still
// expected and then thrown away, so it is never taken for another call's.
//
// The codes of failure: unavailable when no byte of the request was given to the network and none will be (it has
// certainly not been executed), outcome_unknown when some was, also when the deadline or stop came before the answer.
// denied / misconfigured / protocol come from the greeting or from the framing.
//
// Thread-safe. After fork() every call is refused with misconfigured.
#pragma once

#include "net/address_provider.hpp"
#include "net/blocked_call.hpp"
#include "net/stream.hpp"

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace holdfast::net {

class reactor;

// How the stream of bytes falls into frames. Pure, one per connection, used by one thread at a time.
class framing {
 public:
  struct frame {
    std::size_t length = 0;  // 0: not complete yet
    bool push = false;       // unasked for: not the answer to a request
  };
  virtual ~framing() = default;
  // The frame at the beginning of `bytes`. May remember how far it has looked, as long as the same frame is incomplete.
  // An error means that the peer does not speak the protocol (or exceeds its limits): the connection is dropped.
  virtual result<frame> next(std::string_view bytes) = 0;
};

// Completed exactly once, never under a lock: on the reactor's thread, or by the thread that finds out that the request
// cannot be sent. The frames (all answers of the call, one after the other) live for the time of the call only.
class reply_handler {
 public:
  virtual void on_reply(result<std::string_view> frames) noexcept = 0;

 protected:
  ~reply_handler() = default;
};

// What the owner of a channel hears unasked. Called on the reactor's thread, one call at a time per channel, without
// locks, and not any more once the channel is gone; must be quick and must not call exchange().
class channel_listener {
 public:
  virtual void on_push(std::string_view frame) noexcept { static_cast<void>(frame); }
  // The greeting was accepted / the connection is gone. `generation` counts the connections of this channel from 1.
  virtual void on_up(std::uint64_t generation) noexcept { static_cast<void>(generation); }
  virtual void on_down(const error& why) noexcept { static_cast<void>(why); }

 protected:
  ~channel_listener() = default;
};

struct channel_options {
  address where;
  address_provider find_address;  // instead of `where`, when it is set
  std::string
      description;  // of the server for error sentences, secrets redacted: "redis://127.0.0.1:6379"
  std::function<std::unique_ptr<framing>()> make_framing;
  // What is sent first on every fresh connection, and how many frames answer it; `greeted` judges them, with a lock of
  // the connection held: it must be quick, and must not call this channel.
  std::string greeting;
  // Instead of it, when it differs from connection to connection (a session that is resumed). Called on the reactor's
  // thread with the connection's mutex held: quick, and without a call of the channel.
  std::function<std::string()> make_greeting;
  unsigned greeting_replies = 0;
  std::function<result<void>(std::string_view frames)> greeted;
  // Have these frames said no already, so that no more will come? Then `greeted` judges them as they are. As `greeted`.
  std::function<bool(std::string_view frames)> greeting_is_refused;
  channel_listener* listener = nullptr;
  nanoseconds connect_timeout = std::chrono::seconds{2};
  // Connect at once and again whenever the connection is lost (a stream), instead of at the first call.
  bool keep_open = false;
  // A connection whose peer has vanished without a word looks like a slow one. When calls were given up on it and then
  // nothing at all comes in for this long, or for three times as long as those calls were willing to wait, it is
  // dropped. Not earlier: a release behind a slow acquire relies on the order of one connection.
  nanoseconds longest_silence = std::chrono::seconds{5};
  // How long a lone leader polls before it sleeps. 0: never.
  nanoseconds spin = std::chrono::microseconds{50};
};

class channel {
 public:
  channel(reactor& on, channel_options options);
  // Closes; what is still unanswered completes with outcome_unknown, and what was never sent with unavailable. All
  // handlers have been told when it returns (unless one of them calls it), so it waits for the reactor's thread: not to
  // be called with a lock that a handler or the listener wants.
  ~channel();
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  // Sends `request` and waits for `replies` frames, which are put into `into` (its old content is dropped, its memory
  // used again). Returns the generation of the connection that answered. A call for 0 replies is done when it has been
  // sent and everything before it is answered. On the reactor's thread it is refused with misconfigured.
  result<std::uint64_t> exchange(std::string_view request, unsigned replies, const limits& until,
                                 std::string& into);
  // `done` stays alive until it is completed.
  void send(std::string_view request, unsigned replies, const limits& until,
            reply_handler& done) noexcept;
  void send_now(std::string_view request, unsigned replies, const limits& until,
                reply_handler& done) noexcept;

  // Which connection this is (0: none at the moment).
  std::uint64_t generation() const noexcept;
  // How often something has come in over the present connection: as long as it rises the peer lives, however late it
  // answers.
  std::uint64_t received() const noexcept;
  // Drops the connection as if the network had; for tests and for a peer that has lost its mind.
  void drop(const error& why) noexcept;

 private:
  class state;
  const std::shared_ptr<state> state_;
};

}  // namespace holdfast::net
