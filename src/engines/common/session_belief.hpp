// What is known of the sessions of a client, for the proofs that its grants carry (session_proof). Pure: no I/O, no
// clock of its own. Thread-safe.
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

// When a request was sent, and which session had begun by then. Read before it is sent.
struct sending {
  steady_time at;
  std::uint64_t session = 0;
};

class session_belief {
 public:
  // `kept`: for how many sessions, the current one among them, proofs count. An answer that is older than that counts
  // for nothing.
  explicit session_belief(std::size_t kept = 2) : known_(kept) {}

  void begin(std::uint64_t session) {
    const std::lock_guard lock{guard_};
    begin_locked(session);
  }
  // An answer came over this session to what was sent at `sent`.
  void proven(std::uint64_t session, steady_time sent) {
    const std::lock_guard lock{guard_};
    begin_locked(session);
    for (auto& known : known_)
      if (known.number == session) known.proven_at = std::max(known.proven_at, sent);
  }

  // The session of requests that are sent from now on; 0: there was none yet.
  std::uint64_t current() const {
    const std::lock_guard lock{guard_};
    return known_[0].number;
  }
  // The last instant at which it is known to have lived; the beginning of time for one that is not known any more.
  steady_time proven_at(std::uint64_t session) const {
    const std::lock_guard lock{guard_};
    for (const auto& known : known_)
      if (session != 0 && known.number == session) return known.proven_at;
    return steady_time{};
  }

 private:
  struct session_record {
    std::uint64_t number = 0;
    steady_time proven_at{};
  };

  // REQUIRES: guard_ is held.
  void begin_locked(std::uint64_t session) {
    if (session <= known_[0].number) return;
    std::shift_right(known_.begin(), known_.end(), 1);
    known_[0] = {session, steady_time{}};
  }

  mutable std::mutex guard_;
  std::vector<session_record> known_;  // the current one first
};

}  // namespace holdfast::engines
