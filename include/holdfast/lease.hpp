// A lease is this process's right to act as holder of one lock, until it is released or lost.
//
//   auto lease = stock.acquire({.wait = 3s}).value();
//   std::stop_callback on_loss{lease.lost(), [&] { job.cancel(); }};
//   job.run(lease.token());                                    // the resource refuses older tokens
//   if (auto ended = lease.release(); !ended) job.discard();   // or just let it go out of scope
//
// While the process lives, the client renews it in the background. Guaranteed: valid() is never true later than (steady
// time before the request was sent + granted ttl - margin), without asking the store, so a process that wakes from a
// long pause sees the truth at once; lost() follows as soon as the client's threads get to run, earlier when the store
// shows the loss; token() is larger than that of every earlier grant of the name, as far as capabilities().fencing
// promises. Not guaranteed: that no other client believes the same while this process is paused between a check and the
// act. No lease lock can. Pass token() to what you protect.
//
//   state      | valid() | lost()    | release()          | destruction
//   -----------+---------+-----------+--------------------+-------------
//   held       | true    | not fired | ok, then released  | releases
//   lost       | false   | fired     | error lost         | nothing
//   released   | false   | not fired | error not_held     | nothing
//   moved-from | false   | not fired | error not_held     | nothing
//
// Between the end of its validity and the news of it (a thread's wake-up) a lease is neither: valid() is false, lost()
// has not fired. valid() is the truth, lost() is the news.
//
// Ways to lose one: no renewal was confirmed in time, the store no longer lists it, an operator revoked it, max_hold is
// over. What the store may still have of a lost lease is released in the background.
//
// Callbacks on lost() run on a thread that the client keeps for them, one after the other: one that takes long delays
// the next, and the firing of other leases' lost() with it (renewals and the observer go on).
//
// Thread-safe: const members, against each other and against the client. Moving, assigning, release() and renew() want
// the object for themselves. Ownership belongs to the object, not to a thread: move it where you like. It keeps its
// client alive; the handle it came from (mutex ...) may go before it.
//
// In a forked child the copy of a lease is never valid, and its destruction touches nothing of the parent's. Ask it
// nothing else there.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <memory>
#include <stop_token>
#include <string>

namespace holdfast {

namespace core {
struct hold;
struct lease_access;
}  // namespace core

class lease {
 public:
  // Empty, like a moved-from one.
  lease() noexcept = default;
  // Tokens that lost() gave out before stay those of the lease, wherever it moves.
  lease(lease&& other) noexcept;
  // Releases what it held, as the destructor does.
  lease& operator=(lease&& other) noexcept;
  // Releases what it holds: hands it on inside the process, or sends the release without waiting for the store's
  // answer. So it does not block on the network, except while an upgrade or downgrade of it is in doubt: then it asks
  // the store first, for up to twice call_timeout. Never throws. An observer hears of a failure, and what may be left
  // in the store is cleared up in the background.
  ~lease();

  // May we act as holder at this moment? One look at the clock; never blocks, never asks the store.
  bool valid() const noexcept;
  // Will it still be valid after `work`, if renewals stopped now? For work that cannot be interrupted. While
  // renewals go well the answer is yes for about two thirds of the ttl (or of capabilities().longest_validity),
  // less after failures.
  bool valid_for(nanoseconds work) const noexcept;
  explicit operator bool() const noexcept { return valid(); }
  // When it ends if renewals stopped now, by the client's clock (types.hpp), margin already taken off. Moves on with
  // every renewal. steady_time::min() when it is not held.
  steady_time valid_until() const noexcept;

  // Of the grant behind it. upgrade() changes it. An empty lease keeps the last one, which proves nothing.
  fencing_token token() const noexcept { return token_; }
  // Empty after release() and of an empty lease; otherwise it stays, also when the lease is lost.
  const std::string& name() const noexcept;
  // As the store knows it, for logs and for give_back(). All zero when it is not held.
  owner_id owner() const noexcept;
  // lock_mode::exclusive also when it is not held.
  lock_mode mode() const noexcept;

  // Stop is requested when we can no longer claim the lock, on the client's thread for hooks. Not by release(), nor by
  // destruction. Of a lost lease: a token that has fired already. Of an empty one: a token that never fires. The first
  // call allocates. Destroying a std::stop_callback on it waits for its callback if that is running just then.
  std::stop_token lost() const;

  // Gives it back; the lease is empty afterwards, whatever the result. Waits for the store's answer, call_timeout at
  // most (twice that while a change of mode is in doubt); not cancellable. Where another thread of this client waits
  // for the lock, it may be handed on at once, without the store. Of a recursive_mutex it undoes one entry.
  //   ok                 given back, handed on, or one entry undone. Where the store was asked it had not let go before
  //                      (unless a change of mode was in doubt: then ok says only that nothing of it is left)
  //   not_held           it was released or moved from before
  //   lost               it was lost, also when the store says so only now: then lost() fires, and observer and metrics
  //                      hear of it. Work that was done under it may have met another holder's
  //   misconfigured      in a forked child
  //   unavailable, outcome_unknown ...   the store has not confirmed it; it is given back in the background
  result<void> release();
  // Proof of life before something irreversible: asks the store about this very grant, now. ok means that the store
  // listed it as ours at some moment during the call, and that it is valid still; no more than that when you act on it.
  // Prolongs the validity as a renewal does. Blocks for call_timeout at most; not cancellable.
  // lost: the store has let go (then lost() fires), or the proof came too late. not_held: it is empty. unavailable,
  // outcome_unknown ...: nothing is known; the lease is what it was. misconfigured: in a forked child.
  result<void> renew();
  // Leaves it in the store for a successor of this client to adopt (client::adopt): the lease is empty afterwards, and
  // the grant ends with its ttl, counted from the last renewal, unless a successor goes on with it. Does not ask the
  // store and does not block. Gives the owner id that the successor needs.
  //   not_held       it was released or moved from before
  //   lost           it was lost
  //   unsupported    it was not acquired with acquire_options::outlives_client, or is held more than once (by a
  //                  recursive_mutex); it stays what it was
  //   unavailable    an earlier change of its mode is still being cleared up; it stays what it was
  //   misconfigured  in a forked child
  result<owner_id> leave_behind();
  // release() and renew() for coroutines, without a blocked thread, and lazy as every async<T>. The lease stays where
  // it is until the coroutine goes on. Once the release is on its way it is carried out, also when the coroutine is
  // destroyed.
  async<void> async_release();
  async<void> async_renew();

 private:
  friend struct core::lease_access;
  std::shared_ptr<core::hold> hold_;
  std::uint64_t generation_ = 0;
  fencing_token token_{};
};

}  // namespace holdfast
