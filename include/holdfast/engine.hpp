// The engine contract: one attempt of each verb on one store.
//
// An engine does not retry, does not decide how long to wait and knows no policy: that exists once, in
// core. Names, ttls and permits arrive validated. Verbs may be called from any thread at any time.
// Nothing here throws except for lack of memory.
//
// Certain and uncertain failures are told apart by type (error.hpp): after an error that is_not_done() the request had
// no effect and will never have one; any other is a doubt, and core settles it before anybody relies on it. A refusal
// that the server gave to this very request (denied, protocol ...) is a not_done; without that word it is a doubt.
//
// Two drivers, one meaning. The plain verbs may block the calling thread, until call.deadline at the
// latest; the start_ verbs must not block and complete through a completion, on any thread, possibly
// before they return. For stores that answer without I/O the default start_ verbs call the plain ones.
//
// The weights. Every mode is one rule: an entry may enter when its weight plus the weights of the holders
// (and, in fifo order, of those who wait before it) fits the capacity. A writer weighs the whole
// capacity, a reader 1, an upgradeable reader just over one half (so two exclude each other but not the
// readers), k permits weigh k of n. An engine implements that rule and nothing else.
#pragma once

#include <holdfast/capabilities.hpp>
#include <holdfast/clock.hpp>
#include <holdfast/result.hpp>
#include <holdfast/types.hpp>
#include <holdfast/url.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

inline constexpr std::uint64_t rw_capacity = std::uint64_t{1}
                                             << 30;  // of every lock that is not a semaphore
inline constexpr std::uint64_t upgradeable_weight = rw_capacity / 2 + 1;

// How long one call may take. Past the deadline, or once stop is requested, a verb returns promptly, whatever the
// server does: a request that was sent by then is in doubt. The deadline is an instant of std::chrono::steady_clock.
struct call {
  steady_time deadline = steady_time::max();
  std::stop_token stop{};
};

// What the store agreed to. `name` points into storage that core keeps alive as long as the grant.
struct grant {
  std::string_view name;
  owner_id owner;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = rw_capacity;
  fencing_token token;
  // An instant (of engine_config::clock) not later than the one from which the store counts the ttl (the time before
  // the request was sent, or the store's own word where its clock is ours). Validity counts from here: valid_from + ttl
  // is never later than the store's own end of this grant, however it came: by an answer, a message, a hand-over by
  // another client, a renewal or settle.
  steady_time valid_from;
  nanoseconds ttl{};
  std::uint64_t handle = 0;  // the engine's own business
};

struct request {
  std::string_view name;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = rw_capacity;
  std::uint64_t capacity = rw_capacity;
  owner_id
      owner;  // of one attempt: after it was given back, left or settled as "nothing" it never comes again
  nanoseconds ttl{};
  queue_order order = queue_order::fifo;
  int priority = 0;
  std::string_view label;
  bool wait = true;  // queue up when it cannot enter now
  // An upgrade: this grant of ours turns into the new one, ahead of the queue. Until then it stays what it is, and no
  // failure, leave or settle of the replacing request touches it; from then on its owner is unknown to the store.
  const grant* replaces = nullptr;
  // Scratch of the engine's, kept by core per lock handle (e.g. where the name was found last). May be null.
  std::atomic<std::uint64_t>* memo = nullptr;
};

// A place in the queue.
struct ticket {
  std::string_view name;
  owner_id owner;
  std::uint64_t handle = 0;
  // Ask again (enter) at this time even if nothing was heard: the back-stop for lost messages, and the
  // only clock of stores that cannot push.
  steady_time recheck_at = steady_time::max();
  bool replacing = false;  // of a request with `replaces`; set by core
};

struct entered {
  enum class kind : std::uint8_t { granted, waiting, busy };
  kind what = kind::busy;
  grant granted;   // when granted
  ticket waiting;  // when waiting
};

struct progress {
  bool is_granted =
      false;  // else: the ticket may have moved, or time is up; ask again with enter()
  grant granted;
};

struct renewal {
  enum class verdict : std::uint8_t { held, lost, unknown };
  const grant* held = nullptr;        // in
  verdict answer = verdict::unknown;  // out
  steady_time valid_from;             // out, when held
};

struct holder_info {
  owner_id owner;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
  fencing_token token;       // 0 for a waiter
  nanoseconds age{};         // since granted, or since it began to wait
  nanoseconds expires_in{};  // of holders
  int priority = 0;
  std::int64_t pid = 0;
  std::string host;
  std::string label;
};

struct lock_info {
  std::string name;
  std::uint64_t capacity = 0;  // rw_capacity unless a semaphore
  std::uint64_t version = 0;   // changes whenever the holders do; for watch()
  std::vector<holder_info> holders;
  std::vector<holder_info> waiters;  // in the order in which they will be served
};

// One thing that was looked at on the real server, for `holdfast doctor`.
struct finding {
  enum class level : std::uint8_t { good, note, warning, bad };
  level how = level::good;
  std::string about;     // two or three words: "eviction policy"
  std::string sentence;  // what was found, what it means for locks, and what to do
};

enum class counter_op : std::uint8_t { read, create, store, add, compare_exchange, erase };

// Counters serve latch and barrier; they live apart from locks of the same name where counters_apart says so.
struct counter_request {
  std::string_view name;
  counter_op op = counter_op::read;
  std::int64_t operand = 0;   // create/store/compare_exchange: the new value; add: the delta
  std::int64_t expected = 0;  // compare_exchange only
  nanoseconds keep{};         // forgotten when unchanged for this long
};

struct counter {
  bool exists = false;
  bool applied =
      false;  // read: always; create: it was absent; add: it existed; compare_exchange: it was equal
  std::int64_t value = 0;     // after the operation. add() never goes below zero: it stops there
  std::uint64_t version = 0;  // changes with every change, also over erase and create
};

enum class watch_kind : std::uint8_t { lock, counter };

// Completed exactly once, from any thread; its owner keeps it alive until then.
template <class T>
class completion {
 public:
  virtual void complete(result<T> outcome) noexcept = 0;

 protected:
  ~completion() = default;
};

// What an engine tells core unasked. Called from the engine's own threads; must return quickly.
class engine_listener {
 public:
  // The store shows that these grants of ours are gone (revoked, expired, deleted, their session over): all that are
  // known to be gone in one call, because each call looks at every lease of the client.
  virtual void on_lost(std::span<const owner_id> owners, std::string_view why) noexcept = 0;
  void on_lost(const owner_id& owner, std::string_view why) noexcept { on_lost({&owner, 1}, why); }

 protected:
  ~engine_listener() = default;
};

class engine {
 public:
  virtual ~engine() = default;  // ends the session: everything this client still holds is released

  virtual const capabilities& caps() const noexcept = 0;

  // One atomic attempt. Idempotent by owner: asking again with an owner that is queued or granted already
  // answers with just that. busy only when !wait. An error that is not a not_done is a doubt: core asks settle.
  virtual result<entered> enter(const request& ask, const call& limits) = 0;
  // Returns when the ticket may have moved (perhaps with the grant itself), at recheck_at, at the deadline,
  // or when stop is requested, whichever comes first.
  virtual result<progress> await(const ticket& place, const call& limits) = 0;
  // Gives the place up, or the grant if it arrived meanwhile. Safe to repeat; leaves no trace, not even of a request
  // that is delivered later. A `replacing` place is different, because giving the grant up would take along what it
  // replaced: if it arrived meanwhile, either it stays, or what it replaced is there again. Core asks settle which.
  virtual result<void> leave(const ticket& place, const call& limits) = 0;
  // All grants in one call, a verdict for each; one that cannot be asked about is `unknown` and costs the others
  // nothing. An error means nothing is known about any of them. A grant that the store has let go is never revived: its
  // verdict is lost. This blocking verb is proof: the store itself was asked about each very grant, after the call
  // began. start_renew is upkeep and may answer from one proof of the whole session.
  virtual result<void> renew(std::span<renewal> batch, const call& limits) = 0;
  // Owner-only; wakes exactly those who can enter now. not_held when it was gone: nothing was changed, and core
  // announces a loss, so it must be true.
  virtual result<void> release(const grant& held, const call& limits) = 0;
  // Shrinks a grant in place (exclusive -> upgradeable or shared, upgradeable -> shared); same owner, same token.
  // Lets in those who now fit. Idempotent: what has that mode already is answered with just that, so core repeats it
  // while in doubt. not_held when it was gone.
  virtual result<grant> downgrade(const grant& held, lock_mode to, const call& limits) = 0;
  // All of them, without waiting, or none (an empty answer). Only where capabilities().atomic_multi.
  virtual result<std::vector<grant>> enter_all(std::span<const request> asks, const call& limits);
  // After a doubt: granted, waiting, or busy for "the store knows nothing of this owner", whatever mode it has by now
  // (of the request only name and owner count, and `replaces` for "an upgrade"). After busy nothing of this
  // owner appears any more, however late one of its requests is delivered.
  virtual result<entered> settle(const request& ask, const call& limits) = 0;

  // Operators' view. `list` returns names with a holder or a waiter, sorted, at most `limit`.
  virtual result<lock_info> inspect(std::string_view name, const call& limits) = 0;
  virtual result<std::vector<lock_info>> list(std::string_view prefix, std::size_t limit,
                                              const call& limits) = 0;
  // Ends all grants of the name, serves the waiters, raises the fence. Returns how many holders lost it.
  virtual result<std::size_t> revoke(std::string_view name, const call& limits) = 0;

  // Does the store's configuration keep what the capabilities promise? Changes nothing.
  virtual result<std::vector<finding>> diagnose(const call& limits);

  virtual result<counter> count(const counter_request& ask, const call& limits) = 0;
  // Returns when the version is no longer `seen` (0: absent), at the deadline, or on stop.
  virtual result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                             const call& limits) = 0;

  // Does anybody else wait for this? A cheap hint without I/O, for the bound on local hand-off; "yes" when
  // not known.
  virtual bool contended(const grant& held) const noexcept = 0;

  // The arguments of a start_ verb stay alive until its completion.
  virtual void start_enter(const request& ask, const call& limits,
                           completion<entered>& done) noexcept;
  virtual void start_await(const ticket& place, const call& limits,
                           completion<progress>& done) noexcept = 0;
  virtual void start_leave(const ticket& place, const call& limits,
                           completion<void>& done) noexcept;
  // Served in the order of the calls: whatever is asked about the same name afterwards finds it released.
  virtual void start_release(const grant& held, const call& limits,
                             completion<void>& done) noexcept;
  virtual void start_renew(std::span<renewal> batch, const call& limits,
                           completion<void>& done) noexcept;
  virtual void start_enter_all(std::span<const request> asks, const call& limits,
                               completion<std::vector<grant>>& done) noexcept;
  virtual void start_settle(const request& ask, const call& limits,
                            completion<entered>& done) noexcept;
  virtual void start_inspect(std::string_view name, const call& limits,
                             completion<lock_info>& done) noexcept;
  virtual void start_count(const counter_request& ask, const call& limits,
                           completion<counter>& done) noexcept;
  virtual void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                           const call& limits, completion<void>& done) noexcept = 0;
};

// What an engine is opened with. The url lives for the call only; clock and listener outlive the engine.
struct engine_config {
  const store_url& url;
  // The client half of every owner id it will be asked with. An engine may be opened with that of a client that is
  // dead, as its next session: then it can settle and release what that one left (give_back.hpp).
  std::array<std::uint64_t, 2> client;
  const class clock& clock;  // counts the time in which the machine was suspended; see clock.hpp
  engine_listener& listener;
  std::string host;
  std::int64_t pid = 0;
};

}  // namespace holdfast
