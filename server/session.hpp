// One client that speaks the engine contract over HTTP, and the engine that the service has open for it.
//
// Verbs are passed on one to one. Those about one owner are asked one after the other, however they come; a ticket's
// await begins by itself when enter has said that it waits, and what comes of it is told as an event.
//
// Alive as long as its client is heard of: when nothing has come for the grace, counted from when a request was
// received, the engine goes and with it all that the client had. So a client that believes for the grace after it sent
// what was answered is never later than that.
//
// A request that its client has given up must do nothing later on: it says until when it may be carried out, at most
// `longest_request` after it was sent; and owners that have ended are remembered for longer than that.
#pragma once

#include "http.hpp"
#include "keys.hpp"
#include "limits.hpp"
#include "router.hpp"
#include "session_words.hpp"

#include <holdfast/clock.hpp>
#include <holdfast/engine.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace holdfast::server {

class fields;
using lock_request = holdfast::request;  // of a lock, and not of HTTP

// Sequence numbers of owners that have ended: each is remembered for one generation at least, and two at most.
class ended_owners {
 public:
  static constexpr std::chrono::seconds generation{10};
  void add(std::uint64_t sequence, steady_time now) {
    turn(now);
    fresh_.insert(sequence);
  }
  bool has(std::uint64_t sequence) const {
    return fresh_.contains(sequence) || old_.contains(sequence);
  }
  void turn(steady_time now);

 private:
  std::unordered_set<std::uint64_t> fresh_, old_;
  steady_time since_{};
};

// The pool has no room for what cannot be refused: it waits for so long.
inline constexpr std::chrono::milliseconds until_room{20};

class session final : public engine_listener, public std::enable_shared_from_this<session> {
 public:
  struct terms {
    std::string host;
    std::int64_t pid = 0;
    std::chrono::milliseconds grace{};
    std::uint64_t newest =
        0;  // of the owners that the client asked about before, in an earlier session
  };
  struct surroundings {
    server::loop& loop;
    limits& bounds;
    const bool& is_stopping;
    const key& who;
    std::string store;  // to be shown
    // A lock was to be taken away.
    std::function<void(const visit& from, const std::string& lock,
                       const result<std::size_t>& ended)>
        note_break;
  };
  session(surroundings around, std::array<std::uint64_t, 2> client, terms how, limits::place place);
  ~session() = default;
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  // Of another thread, once: opens the engine.
  result<void> open(const store_url& url);
  // As loop::work, in a place of the client's key. False: it has none left.
  bool work(std::function<void()> blocking, std::function<void()> then);
  // From now on requests come. `on_over` is called when the engine has gone.
  void start(std::function<void()> on_over);
  // Its client comes again, with another id: what is on its way under the old one has no effect.
  void begin_anew(std::string id, terms how);
  void end(std::string_view why, std::function<void()> then = {});

  const std::string& id() const noexcept { return id_; }
  const std::array<std::uint64_t, 2>& client() const noexcept { return client_; }
  const key& who() const noexcept { return around_.who; }
  const capabilities& caps() const noexcept { return engine_->caps(); }
  std::chrono::milliseconds grace() const noexcept { return how_.grace; }
  bool is_open() const noexcept { return phase_ == phase::open; }
  // The service stops. Nothing is told or waited for any more, so that the client looks for the next service at once;
  // what it holds stays in the store.
  void leave_behind();
  // Its client has, or may have, something that ends when the engine goes; or the engine cannot go, because an answer
  // that is still to come would find nobody.
  bool is_counted_on() const noexcept {
    return !is_open() || flights_ > 0 || (!engine_->caps().outlives_client && !attempts_.empty());
  }

  // A request came. The verb answers it; throws refused.
  using verb = void (session::*)(const visit&, const moment&, fields&);
  void act(visit to, verb what);
  void listen(const visit& to);

  void enter(const visit& to, const moment& came, fields& in);
  void leave(const visit& to, const moment& came, fields& in);
  void renew(const visit& to, const moment& came, fields& in);
  void release(const visit& to, const moment& came, fields& in);
  void downgrade(const visit& to, const moment& came, fields& in);
  void settle(const visit& to, const moment& came, fields& in);
  void enter_all(const visit& to, const moment& came, fields& in);
  void inspect(const visit& to, const moment& came, fields& in);
  void list(const visit& to, const moment& came, fields& in);
  void list_counters(const visit& to, const moment& came, fields& in);
  void revoke(const visit& to, const moment& came, fields& in);
  void count(const visit& to, const moment& came, fields& in);
  void watch(const visit& to, const moment& came, fields& in);
  void unwatch(const visit& to, const moment& came, fields& in);
  void diagnose(const visit& to, const moment& came, fields& in);

 private:
  // What the client has, or may have, in the store: one owner.
  struct attempt {
    enum class state : std::uint8_t { nothing, waiting, holding };
    std::string name, label;
    owner_id owner;
    state is = state::nothing;
    grant held;
    ticket place;
    std::uint64_t replaces = 0;
    bool awaits = false;
    std::stop_source stop;
    call limits;  // of its await
    bool is_busy = false;
    std::deque<std::function<void()>> next;  // what is asked about it, in order
    limits::place lease, waiter;
  };
  using attempt_ref = std::shared_ptr<attempt>;
  struct watched {
    std::string name;
    std::stop_source stop;
    call limits;
    limits::place place;
  };
  enum class phase : std::uint8_t { opening, open, ending, over };
  // What was asked, for as long as the engine looks at it.
  struct question {
    lock_request ask;
    grant base, held;
    ticket place;
    call limits;
    attempt_ref about, replaced;
  };

  call limits_in(fields& in, const moment& came) const;
  std::string name_in(const visit& to, fields& in, scope wanted) const;
  std::uint64_t owner_in(fields& in) const;
  lock_request request_in(fields& in) const;
  attempt_ref find(std::uint64_t sequence, std::string_view name);
  attempt_ref find_or_make(std::uint64_t sequence, std::string_view name);

  // Engine calls, counted: the engine goes when none is under way.
  template <class T, class Begin>
  void ask(Begin begin, std::function<void(result<T>)> then);
  // On a thread that may wait, where the store does. False: too much waits for that already.
  bool block(std::function<void()> blocking, std::function<void()> then);
  template <class T>
  void block(const visit& to, std::function<result<T>()> blocking, std::function<void(T&)> then);
  void landed();

  void in_turn(const attempt_ref& of, std::function<void()> step);
  void go_on(const attempt_ref& of);
  void done(const attempt_ref& of);
  void begin_await(const attempt_ref& of);
  void on_progress(const attempt_ref& of, result<progress> came);
  void take(const attempt_ref& of, const grant& held);
  void take(const attempt_ref& of, const entered& said);
  void drop(const attempt_ref& of);
  // Knows it, or asks the store first whether a session before this one has left it: then(said) with what is known.
  void settled_first(const attempt_ref& of, const call& limits,
                     std::function<void(result<void>)> then);
  void enter_new(const visit& to, const moment& came, const std::shared_ptr<question>& what);
  void enter_now(const visit& to, const moment& came, const std::shared_ptr<question>& what);
  void release_now(const visit& to, const moment& came, const std::shared_ptr<question>& what);
  void leave_now(const visit& to, const moment& came, const std::shared_ptr<question>& what);
  void downgrade_now(const visit& to, const moment& came, const std::shared_ptr<question>& what,
                     lock_mode mode);
  void gone(const attempt_ref& which);
  void let_go_of_base(const question& what);
  struct round;
  void renew_known(const visit& to, const moment& came, const std::shared_ptr<round>& what);
  void answer_renewed(const visit& to, const moment& came, const round& what,
                      const result<session_proof>& proof);

  void say(std::string_view event, std::string data);
  void flush();
  moment now() const;
  static void answer(const visit& to, const moment& came, json_object words);
  void answer(const visit& to, const moment& came, const attempt& of) const;
  static void refuse(const visit& to, const error& why);

  void look();
  void end_waits();
  void end_calmly();
  void let_engine_go();
  void on_lost(std::span<const owner_id> owners, std::string_view why) noexcept override;
  void on_session_lost(std::uint64_t number, std::string_view why) noexcept override;
  void lost(const std::vector<std::uint64_t>& owners, std::string_view why);

  const surroundings around_;
  const std::array<std::uint64_t, 2> client_;
  terms how_;
  const limits::place place_;
  std::string id_;
  phase phase_ = phase::opening;
  std::unique_ptr<engine> engine_;
  const clock* store_clock_ = nullptr;  // of its grants
  steady_time heard_at_;
  bool is_suspect_ = false;
  bool is_listened_to_ = false;  // or has been
  std::unique_ptr<timer> next_look_, next_flush_;
  std::function<void()> on_over_;
  std::vector<std::function<void()>> when_over_;
  std::size_t flights_ = 0;
  bool is_released_ = false;

  std::unordered_map<std::uint64_t, attempt_ref> attempts_;  // by sequence
  std::unordered_map<std::uint64_t, std::shared_ptr<watched>> watches_;
  ended_owners ended_;

  std::shared_ptr<event_stream> stream_;
  std::stop_token stream_gone_;
  std::deque<std::pair<std::string_view, std::string>> backlog_;  // the names are literals
};

}  // namespace holdfast::server
