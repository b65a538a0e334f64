// A lease is this process's right to act as holder of one lock, until it is released or lost.
//
// Guaranteed: valid() is never true later than (steady time before the request was sent + granted
// ttl - margin), without asking anybody, so a process that wakes from a long pause sees the truth
// at once; lost() fires at the latest when that moment passes, earlier when the store shows the
// loss; token() is larger than that of every earlier grant of the name. Not guaranteed: that nobody
// else believes the same while we are paused between a check and the act. No lease lock can. Pass
// token() to what you protect.
//
//   state      | valid() | lost()    | release()          | destruction
//   -----------+---------+-----------+--------------------+-------------
//   held       | true    | not fired | ok, then released  | releases
//   lost       | false   | fired     | error lost         | nothing
//   released   | false   | not fired | error not_held     | nothing
//   moved-from | false   | not fired | error not_held     | nothing
//
// Callbacks on lost() run on a thread that the client keeps for them and for its observer, one after the other: one
// that takes long delays the next.
//
// Thread-safe: const members. Ownership belongs to the object, not to a thread: move it where you like.
// Destruction sends the release without waiting for the store's answer (an observer hears of a failure), never throws.
#pragma once

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
  lease() noexcept = default;
  lease(lease&& other) noexcept;
  lease& operator=(lease&& other) noexcept;  // releases what it held
  ~lease();

  bool valid() const noexcept;
  bool valid_for(nanoseconds work) const noexcept;  // will it still be, if renewals stopped now?
  explicit operator bool() const noexcept { return valid(); }
  steady_time valid_until()
      const noexcept;  // margin already taken off; moves on with every renewal

  fencing_token token() const noexcept { return token_; }
  const std::string& name() const noexcept;
  owner_id owner() const noexcept;
  lock_mode mode() const noexcept;

  // Stop is requested when we can no longer claim the lock. Not fired by release().
  std::stop_token lost() const;

  // Waits for the store's answer. not_held if it was released before; lost if it was lost, also when the store says so
  // only now: then lost() fires, and observer and metrics hear of it.
  result<void> release();
  // Proof of life before something irreversible: asks the store about this very grant, now. ok means that the store
  // listed it as ours at some moment during the call, and that it is valid still.
  result<void> renew();

 private:
  friend struct core::lease_access;
  std::shared_ptr<core::hold> hold_;
  std::uint64_t generation_ = 0;
  fencing_token token_{};
};

}  // namespace holdfast
