// How long a client may believe in its grants, where the store takes them away once the client's session has been gone
// for a while. Pure: no I/O, no clock of its own. Thread-safe.
//
// A session is one connection, or what else the store sees of a living client; they are numbered from 1, later ones
// higher. Whatever is answered over a session proves that the session lived when the question was sent. It says nothing
// about grants from before that session: between two sessions the store may have given them away. So a grant counts on
// the proofs of one session only: the one that lived when the store granted it, or was last asked about that very
// grant.
#pragma once

#include <holdfast/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace holdfast::engines {

class session_belief {
 public:
  // `kept`: for how many sessions, the current one among them, proofs count. An answer that is older than that counts
  // for nothing.
  explicit session_belief(std::size_t kept = 2) : known_(kept) {}

  // The session was there at `now`. A later instant than the true one is safe: it covers fewer grants.
  void begin(std::uint64_t session, steady_time now) {
    const std::lock_guard lock{guard_};
    begin_locked(session, now);
  }
  // An answer came over this session, at `now`, to what was sent at `sent`.
  void proven(std::uint64_t session, steady_time sent, steady_time now) {
    const std::lock_guard lock{guard_};
    begin_locked(session, now);
    for (auto& one : known_)
      if (one.number == session) one.proven_at = std::max(one.proven_at, sent);
  }

  // The session of requests that are sent from now on; 0: there was none yet.
  std::uint64_t current() const {
    const std::lock_guard lock{guard_};
    return known_[0].number;
  }
  // The session on which a grant counts that the store made, or was asked about, not before `since`. 0: none.
  std::uint64_t covering(steady_time since) const {
    const std::lock_guard lock{guard_};
    for (const auto& one : known_)
      if (one.number != 0 && since >= one.begun_at) return one.number;
    return 0;
  }
  // The last instant at which it is known to have lived; the beginning of time for one that is not known any more.
  steady_time proven_at(std::uint64_t session) const {
    const std::lock_guard lock{guard_};
    for (const auto& one : known_)
      if (session != 0 && one.number == session) return one.proven_at;
    return steady_time{};
  }

 private:
  struct session_record {
    std::uint64_t number = 0;
    steady_time begun_at{};
    steady_time proven_at{};
  };

  // REQUIRES: guard_ is held.
  void begin_locked(std::uint64_t session, steady_time now) {
    if (session <= known_[0].number) return;
    std::shift_right(known_.begin(), known_.end(), 1);
    known_[0] = {session, now, steady_time{}};
  }

  mutable std::mutex guard_;
  std::vector<session_record> known_;  // the current one first
};

}  // namespace holdfast::engines
