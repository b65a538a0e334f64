// election: one leader among many candidates, and everybody can see who.
//
// Leading is holding a lease: valid(), lost() and token() mean what they always mean. The
// candidate's value (an address, say) is what the others read.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/client.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/options.hpp>

#include <optional>
#include <string>

namespace holdfast {

struct leader_info {
  std::string value;
  fencing_token term;  // rises with every new leader
  owner_id owner;
  std::string host;
  std::int64_t pid = 0;
};

class election {
 public:
  // `value` is shown to the others; at most 64 bytes. Throws lock_error.
  election(const client& store, std::string name, std::string value = {});

  // Waits to become leader. Resign by releasing the lease.
  result<lease> campaign(acquire_options options = {});
  async<lease> async_campaign(const acquire_options& options);
  HOLDFAST_REFUSE_TEMPORARY(async<lease> async_campaign(acquire_options&&));
  async<lease> async_campaign() { return seat_.async_acquire(); }
  // Who leads now, if anybody.
  result<std::optional<leader_info>> leader() const;
  // Returns when the leader's term is no longer `seen` (0: nobody led), with the new state.
  // timed_out, cancelled.
  result<std::optional<leader_info>> observe(fencing_token seen, nanoseconds limit = forever,
                                             std::stop_token stop = {}) const;
  async<std::optional<leader_info>> async_observe(fencing_token seen, nanoseconds limit = forever,
                                                  std::stop_token stop = {}) const;
  const std::string& name() const noexcept { return seat_.name(); }

 private:
  client store_;
  std::string value_;
  mutex seat_;
};

}  // namespace holdfast
