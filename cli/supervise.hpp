// Supervises a program that runs under a lease: passes signals on, shares the terminal, ends it on loss.
#pragma once

#include "args.hpp"
#include "child.hpp"
#include "signals.hpp"

#include <holdfast/lease.hpp>
#include <holdfast/observer.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace holdfast::cli {

// Remembers why a lease was lost, for the sentence that says so.
class loss_reason : public observer {
 public:
  void lost(std::string_view name, fencing_token token, std::string_view why) override;
  // " (revoked)". The hook may come a moment after lost() has fired, so it waits that long for it; else "".
  std::string str() const;

 private:
  mutable std::mutex guard_;
  mutable std::condition_variable told_;
  std::string why_;
};

struct supervision {
  const program& what;
  const environment& variables;
  const lease& held;
  signal_inbox& signals;
  guard_process& guard;
  const loss_reason& reason;
  bool end_when_lost = true;
  std::chrono::nanoseconds grace{};
  bool wait_for_group = false;  // not only for the program itself
};

struct outcome {
  int exit_code = 0;          // the program's own, 128 + n when signal n ended it
  bool lost = false;          // the lease was lost before the program had ended
  bool asked_to_end = false;  // we were sent INT, TERM, HUP or QUIT, and passed it on
};

// Does this store take seconds to see that we are dead? The kernel tells the local one at once.
inline bool notices_death_late(const capabilities& store) noexcept {
  return store.cross_process && store.clock == expiry_clock::server;
}

// Returns when the program has ended; when it was ended for loss, or with wait_for_group, when all its group has.
// Throws program_error.
outcome supervise(const supervision& job);

// HOLDFAST_TOKEN, HOLDFAST_LOCK, and HOLDFAST_STORE: a holdfast inside the program means the same store, or fails. A
// password in the address is not handed on, because programs print their environment; see withheld_password.
environment variables_for(const arguments& args, const lease& held);

}  // namespace holdfast::cli
