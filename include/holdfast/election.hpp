// election: one leader among many candidates, and all clients can see which.
//
//   holdfast::election scheduler{client, "scheduler", "10.0.0.7:9000"};
//   auto term = scheduler.campaign().value();                       // waits until we lead
//   std::stop_callback on_loss{term.lost(), [&] { stop_scheduling(); }};
//   schedule(term.token());                                         // to resign: term.release()
//
// Leading is holding a lease: valid(), lost() and token() mean what they always mean, and a paused leader may
// still believe that it leads. Show the term, which is the lease's token, to what you lead. The candidate's value
// (an address, say) is what the others read. Every term has a token of its own, also between candidates that
// share a client.
//
// In the store it is the exclusive lock of that name. Thread-safe. Candidates that crash are replaced as holders are;
// loss and fork: see lease.hpp and client.hpp.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/client.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/options.hpp>

#include <optional>
#include <string>

namespace holdfast {

// The leader as the store showed it at one moment: by the time it is read another may lead.
struct leader_info {
  std::string value;  // as the candidate gave it; empty where the store has no place for it
  // Rises with every new leader, as far as capabilities().fencing promises. 0: a program of another make leads, which
  // takes no token.
  fencing_token term;
  owner_id owner;
  std::string host;  // where the leader's client runs, by its own word; so is pid
  std::int64_t pid = 0;
};

class election {
 public:
  // Does not ask the store. `value` is shown to the others: at most 64 bytes of UTF-8 without control characters; it is
  // the label of the lock. Throws lock_error misconfigured for a bad name or value.
  election(const client& store, std::string name, std::string value = {});

  // Waits to become leader. Resign by releasing the lease (or dropping it). Blocking, cancellation and errors as those
  // of mutex::acquire; label, label_is_value and own_token are set here, whatever the options say.
  result<lease> campaign(acquire_options options = {});
  async<lease> async_campaign(const acquire_options& options);
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<lease> async_campaign(acquire_options&&));
  async<lease> async_campaign() { return seat_.async_acquire(); }
  // The leader of this moment; nothing when there is none. One request: blocks for call_timeout at most. Its errors are
  // those of client::inspect.
  result<std::optional<leader_info>> leader() const;
  // Returns when the leader's term is no longer `seen` (0: there was no leader), with the new state; at once if it is
  // another already. Terms in between may be missed, and a change is seen as soon as the store tells it (poll: with the
  // next look). timed_out after `limit` (0 or less: one look), cancelled by `stop`; a look that is on its way is not
  // interrupted, so call_timeout later at most. Unlike the wait for a lock it has no patience with an outage:
  // unavailable, and what else leader() may say, ends it at once. A leader without a term is as none to it.
  result<std::optional<leader_info>> observe(fencing_token seen, nanoseconds limit = forever,
                                             std::stop_token stop = {}) const;
  // The same for coroutines; blocks no thread (async.hpp). The handle may go while it waits.
  async<std::optional<leader_info>> async_observe(fencing_token seen, nanoseconds limit = forever,
                                                  std::stop_token stop = {}) const;
  const std::string& name() const noexcept { return seat_.name(); }

 private:
  client store_;
  std::string value_;
  mutex seat_;
};

}  // namespace holdfast
