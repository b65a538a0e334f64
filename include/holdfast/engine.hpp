// The engine contract: one attempt of each verb on one store. For authors of engines; programs need it only for the
// records that operators look at (lock_info, holder_info, finding).
//
// An engine does not retry, does not decide how long to wait and knows no policy: that exists once, in core. Names,
// ttls and permits arrive validated. Verbs may be called from any thread at any time. Nothing here throws except for
// lack of memory.
//
// Certain and uncertain failures are told apart by type (error.hpp): after an error that is_not_done() the request had
// no effect and will never have one; any other is a doubt, and core settles it before a caller relies on it. A refusal
// that the server gave to this very request (denied, protocol ...) is a not_done; without that word it is a doubt.
//
// Two drivers, one meaning. The plain verbs may block the calling thread, until call.deadline at the latest; the start_
// verbs must not block and complete through a completion, on any thread, possibly before they return. For stores that
// answer without I/O the default start_ verbs call the plain ones.
//
// Time. call.deadline and all sleeping are of std::chrono::steady_clock; grant.valid_from is of engine_config::clock,
// from which belief in a lease is counted. Keep the two apart: after a suspend they differ.
//
// Fork. In a forked child the verbs must be refused (misconfigured, not_done), and the destructor must leave the
// parent's session alone. Core refuses most calls before they get here.
//
// The weights. Every mode is one rule: an entry may enter when its weight plus the weights of the holders (and, in fifo
// order, of the waiters before it) fits the capacity. A writer weighs the whole capacity, a reader 1, an upgradeable
// reader just over one half (so two exclude each other but not the readers), k permits weigh k of n. An engine
// implements that rule and nothing else.
#pragma once

#include <holdfast/capabilities.hpp>
#include <holdfast/clock.hpp>
#include <holdfast/result.hpp>
#include <holdfast/types.hpp>
#include <holdfast/url.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

// The capacity of every lock that is not a semaphore, and the weight of its writer.
inline constexpr std::uint64_t rw_capacity = std::uint64_t{1} << 30;
inline constexpr std::uint64_t upgradeable_weight = rw_capacity / 2 + 1;

// How long one call may take. Past the deadline, or once stop is requested, a verb returns promptly, whatever the
// server does: a request that was sent by then is in doubt. The deadline is an instant of std::chrono::steady_clock.
// Stores that are `immediate` get none for enter and release.
struct call {
  steady_time deadline = steady_time::max();
  std::stop_token stop{};
};

// A session is what the store sees of a living client: a connection that it watches, a lease that is kept alive. Where
// capabilities().longest_validity is set, the store may take a client's grants away once their session has been gone
// for that long, although their ttl has not passed. So a grant is believed until its ttl ends, or longest_validity
// after its session was last known to live, whichever comes first. Core applies that rule and asks for proofs (renew)
// often enough; an engine says what it knows.
struct session_proof {
  std::uint64_t number =
      0;  // of the sessions of this engine, from 1: a later one has a higher number. 0: none
  steady_time
      proven_at;  // it lived at this instant of engine_config::clock: what was sent then was answered
};

// What the store agreed to: one holder of one lock. `name` points into storage that core keeps alive as long as the
// grant. Handed back by core to renew, release and downgrade, as a copy.
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
  // The engine's own business; core only copies it.
  std::uint64_t handle = 0;
  // The session on which it counts: the one that lived when the store granted it, or was last asked about this very
  // grant. proven_at is of this grant alone: a store may protect a fresh grant for a while whatever becomes of the
  // session.
  session_proof session{};
};

// What is asked of enter, enter_all and settle. The views live until the verb has returned or completed.
struct request {
  std::string_view name;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = rw_capacity;
  std::uint64_t capacity = rw_capacity;
  // Of one attempt: after it was given back, left, settled as "nothing" or taken_back it never comes again.
  owner_id owner;
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
  // As acquire_options::label_is_value: other programs read the label, so it is stored as it is, also when empty.
  bool label_is_value = false;
  // Exclusive, and readers of this name are to be expected: this client has a shared_mutex of it. For layouts of other
  // programs, in which a writer among readers is written otherwise than the holder of a plain mutex.
  bool has_readers = false;
  // As acquire_options::outlives_client: the grant stays until its ttl is over although its session has ended. An
  // engine that is opened with the client half of its owner's id, as the next session of that client, finds it by
  // settle() and has it from then on as one of its own.
  bool outlives_client = false;
};

// A place in the queue. Good until it is left or granted; if the store has forgotten it meanwhile, the next enter with
// the same owner makes a new one.
struct ticket {
  std::string_view name;
  owner_id owner;
  std::uint64_t handle = 0;
  // Ask again (enter) at this time even if nothing was heard: the back-stop for lost messages, and the only clock of
  // stores that cannot push.
  steady_time recheck_at = steady_time::max();
  bool replacing = false;  // of a request with `replaces`; set by core
};

// The answer to enter and settle.
struct entered {
  // granted: it is ours. waiting: it is queued. busy: enter was asked not to wait; settle knows nothing of the owner.
  enum class kind : std::uint8_t { granted, waiting, busy };
  kind what = kind::busy;
  grant granted;   // when granted
  ticket waiting;  // when waiting
};

// The answer to await.
struct progress {
  // Else the ticket may have moved, or time is up: ask again with enter().
  bool is_granted = false;
  grant granted;
};

// One lease in a call of renew.
struct renewal {
  // held: still ours, from valid_from on for its ttl. lost: gone for certain. unknown: not found out; nothing changes.
  enum class verdict : std::uint8_t { held, lost, unknown };
  const grant* held = nullptr;        // in
  verdict answer = verdict::unknown;  // out
  steady_time valid_from;             // out, when held
  session_proof session{};            // out, when held: as in a grant
  bool must_ask = false;              // in: start_renew, too, asks the store about this very grant
};

// Durations in holder_info that are none: the store cannot tell it; and it does not end by itself.
inline constexpr nanoseconds unknown_time = nanoseconds::min();
inline constexpr nanoseconds no_expiry = nanoseconds::max();

// One holder or waiter as operators see it, at one moment. What the store does not know is empty, 0 or unknown_time.
struct holder_info {
  owner_id owner;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
  fencing_token token;             // 0 for a waiter, and for a holder of another make without one
  nanoseconds age = unknown_time;  // since granted, or since it began to wait
  nanoseconds expires_in = unknown_time;  // of holders; no_expiry: it stays until it is given back
  int priority = 0;
  // Where its client runs, by its own word, and acquire_options::label. Not proof of anything.
  std::int64_t pid = 0;
  std::string host;
  std::string label;
  // How the store and other programs write the owner, in printable characters, where that is not to_string(owner).
  std::string owner_text{};
};

// One lock name as operators see it, at one moment.
struct lock_info {
  std::string name;
  std::uint64_t capacity = 0;  // rw_capacity unless a semaphore; 0: not known
  std::uint64_t version = 0;   // changes whenever the holders do; for watch()
  std::vector<holder_info> holders;
  std::vector<holder_info> waiters;  // in the order in which they will be served
  // Of a semaphore whose store knows how many permits are free, and not which holders have the others.
  std::optional<std::uint64_t> free_permits{};
};

// One thing that was looked at on the real server, for `holdfast doctor`.
struct finding {
  enum class level : std::uint8_t { good, note, warning, bad };
  // good: as it should be. note: worth knowing, or the server refused to tell. warning: think about it. bad: must be
  // changed; `holdfast doctor` fails.
  level how = level::good;
  std::string about;     // two or three words: "eviction policy"
  std::string sentence;  // what was found, what it means for locks, and what to do
};

// read changes nothing. create writes unless there is one, store in any case. add changes one that is there.
// compare_exchange writes when the value is `expected`. erase forgets it.
enum class counter_op : std::uint8_t { read, create, store, add, compare_exchange, erase };

// Counters serve latch and barrier; they live apart from locks of the same name where counters_apart says so.
struct counter_request {
  std::string_view name;
  counter_op op = counter_op::read;
  std::int64_t operand = 0;   // create/store/compare_exchange: the new value; add: the delta
  std::int64_t expected = 0;  // compare_exchange only
  nanoseconds keep{};         // forgotten when unchanged for this long; 0: as before
  // 73 years. Not more is asked for: times are sums of nanoseconds, and one that wraps is in the past.
  static constexpr nanoseconds longest_keep = nanoseconds::max() / 4;
};

// A counter after the operation.
struct counter {
  bool exists = false;
  // read, store: always; create: it was absent; add, erase: it existed; compare_exchange: it was equal.
  bool applied = false;
  std::int64_t value = 0;     // after the operation. add() never goes below zero: it stops there
  std::uint64_t version = 0;  // changes with every change, also over erase and create
};

// One counter as operators see it, at one moment.
struct counter_info {
  std::string name;
  std::int64_t value = 0;
  // When it will be forgotten if it stays unchanged; no_expiry: never. unknown_time: the store did not tell.
  nanoseconds forgotten_in = unknown_time;
};

enum class watch_kind : std::uint8_t { lock, counter };

// How a start_ verb answers. complete() is called exactly once, from any thread, at the latest when the engine is
// destroyed; its owner keeps it alive until then, and perhaps no longer: the engine must not touch it, nor the
// arguments of the verb, afterwards. complete() does not block and may call other start_ verbs: do not call it
// under a lock.
template <class T>
class completion {
 public:
  virtual void complete(result<T> outcome) noexcept = 0;

 protected:
  ~completion() = default;
};

// What an engine tells core unasked. Called from the engine's own threads. It does not wait for the store and calls no
// hooks, but may call start_ verbs, for waiters that have their turn now: do not call it under a lock.
class engine_listener {
 public:
  // The store shows that these grants of ours are gone (revoked, expired, deleted, their session over): all that are
  // known to be gone in one call, because each call looks at every lease of the client. Also of grants whose answer has
  // not reached core yet; owners that core does not know are no error. `why` is a sentence for people.
  virtual void on_lost(std::span<const owner_id> owners, std::string_view why) noexcept = 0;
  void on_lost(const owner_id& owner, std::string_view why) noexcept { on_lost({&owner, 1}, why); }
  // This session is over for good, and with it every grant that counts on it or on an earlier one. Only where the end
  // of a session is the end of its grants; a connection that can be made anew within longest_validity is no loss.
  virtual void on_session_lost(std::uint64_t number, std::string_view why) noexcept = 0;

 protected:
  ~engine_listener() = default;
};

// One session of one client with one store. Opened by a factory (engine_config below) that proves that the store
// answers; destroyed by core when no verb is running any more, though start_ verbs may be on their way.
class engine {
 public:
  // Ends the session: everything this client still holds is released, and what is on its way is completed. May block
  // for a moment: the thread that drops the client's last handle waits for it.
  virtual ~engine() = default;

  // Constant. Lives as long as the engine.
  virtual const capabilities& caps() const noexcept = 0;

  // One atomic attempt. Idempotent by owner: asking again with an owner that is queued or granted already answers with
  // just that. busy only when !wait. misconfigured when the lock is in use with another capacity. An error that is not
  // a not_done is a doubt: core asks settle. unavailable is tried again by core while its patience lasts.
  virtual result<entered> enter(const request& ask, const call& limits) = 0;
  // Returns when the ticket may have moved (perhaps with the grant itself), at recheck_at, at the deadline, or when
  // stop is requested, whichever comes first. Returning early for no reason is allowed, but costs an enter.
  virtual result<progress> await(const ticket& place, const call& limits) = 0;
  // Gives the place up, or the grant if it arrived meanwhile. Safe to repeat; leaves no trace, not even of a request
  // that is delivered later. A `replacing` place is different, because giving the grant up would take along what it
  // replaced: if it arrived meanwhile, either it stays, or what it replaced is there again. Core asks settle which.
  virtual result<void> leave(const ticket& place, const call& limits) = 0;
  // All grants in one call, a verdict for each; one that cannot be asked about is `unknown` and costs the others
  // nothing. An error means nothing is known about any of them. A grant that the store has let go is never revived: its
  // verdict is lost. This blocking verb is proof: the store itself was asked about each very grant, after the call
  // began. start_renew is upkeep and may answer from the proof of the session, except where renewal::must_ask is set.
  //
  // Also the heartbeat: it returns a proof of the session, as of the beginning of the call or later, that counts for
  // all grants of that session; with an empty batch it is nothing else. start_renew of a batch that is not empty may
  // return an older one. A session that is a connection is made anew here if need be. When the answer names a later
  // session than that of a grant, core asks about that grant at once. Stores without longest_validity return {}.
  virtual result<session_proof> renew(std::span<renewal> batch, const call& limits) = 0;
  // Owner-only; wakes exactly the waiters that can enter now. not_held when it was gone: nothing was changed, and core
  // announces a loss, so it must be true. Safe to repeat. After any other error core settles it in the background.
  virtual result<void> release(const grant& held, const call& limits) = 0;
  // Shrinks a grant in place (exclusive -> upgradeable or shared, upgradeable -> shared); same owner, same token. Lets
  // in the waiters that now fit. Idempotent: what has that mode already is answered with just that, so core repeats it
  // while in doubt. not_held when it was gone.
  virtual result<grant> downgrade(const grant& held, lock_mode to, const call& limits) = 0;
  // All of them, without waiting, or none (an empty answer, also when they are too many for one step: core then takes
  // them one by one). Grants in the order of the requests. Only where capabilities().atomic_multi; unsupported else.
  virtual result<std::vector<grant>> enter_all(std::span<const request> asks, const call& limits);
  // After a doubt: granted, waiting, or busy for "the store knows nothing of this owner", whatever mode it has by now
  // (of the request only name and owner count, and `replaces` for "an upgrade"). After busy nothing of this
  // owner appears any more, however late one of its requests is delivered.
  virtual result<entered> settle(const request& ask, const call& limits) = 0;

  // Operators' view. A name that is not in use has no holders and no waiters; that is no error. `list` returns names
  // with a holder or a waiter (or with free_permits that may not be all), sorted, at most `limit`; unsupported unless
  // capabilities().listing, with a sentence that says what to change.
  virtual result<lock_info> inspect(std::string_view name, const call& limits) = 0;
  virtual result<std::vector<lock_info>> list(std::string_view prefix, std::size_t limit,
                                              const call& limits) = 0;
  // Ends all grants of the name, serves the waiters, raises the token: the next token is larger than all before. The
  // clients of the holders hear of it by on_lost or by a renewal. Returns how many holders lost it.
  virtual result<std::size_t> revoke(std::string_view name, const call& limits) = 0;

  // Does the store's configuration keep what the capabilities promise? Changes nothing. By default: nothing to look at.
  virtual result<std::vector<finding>> diagnose(const call& limits);

  // One atomic operation. Not idempotent, and never settled: so unavailable only if it was not done, and
  // outcome_unknown where that is not certain.
  virtual result<counter> count(const counter_request& ask, const call& limits) = 0;
  // Operators' view: the counters that exist, of latches and of barriers, sorted by name, at most `limit`. unsupported
  // unless capabilities().counters and capabilities().listing, with a sentence that says what to change; by default.
  virtual result<std::vector<counter_info>> list_counters(std::string_view prefix,
                                                          std::size_t limit, const call& limits);
  // Returns when the version is no longer `seen` (0: absent), at the deadline, or on stop. Core looks again afterwards,
  // so returning early is allowed; missing a change is not.
  virtual result<void> watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                             const call& limits) = 0;

  // Does another client wait for this? A cheap hint without I/O, for the bound on local hand-off; "yes" when not known.
  // May be late: a waiter is then served some hand-offs later.
  virtual bool contended(const grant& held) const noexcept = 0;

  // ---- the same verbs without blocking. Their arguments stay alive until the completion, which comes exactly once.
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
                           completion<session_proof>& done) noexcept;
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

// What an engine is opened with. The url lives for the call only; clock and listener outlive the engine. The factory
// answers misconfigured for an address or option that it does not understand, denied, unavailable or protocol when the
// store cannot be used, and bounds the time by itself: it is given no deadline.
struct engine_config {
  const store_url& url;
  // The client half of every owner id it will be asked with. An engine may be opened with that of a client that is
  // dead, as its next session: then it can settle and release what that one left (give_back.hpp, client::adopt).
  std::array<std::uint64_t, 2> client;
  const class clock& clock;  // counts the time in which the machine was suspended; see clock.hpp
  engine_listener& listener;
  // Shown to operators; "unknown" or empty where it is not known.
  std::string host;
  std::int64_t pid = 0;
};

// The engine of the address's scheme, as client::try_open() opens it. For programs that pass the contract on to others;
// all others want a client. unsupported when this build has none for the scheme.
result<std::unique_ptr<engine>> open_engine(const engine_config& config);

}  // namespace holdfast
