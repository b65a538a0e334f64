// The acquire machine driven by a blocking thread, and the modes that need no gate.
#pragma once

#include "core/acquire_machine.hpp"
#include "core/client_core.hpp"

#include <holdfast/lease.hpp>

#include <memory>
#include <optional>
#include <vector>

namespace holdfast::core {

// Runs the machine to its end on this thread. `first` is the answer to an enter that was made already.
result<grant> drive(client_core& core, acquire_machine& machine,
                    std::optional<result<entered>> first = std::nullopt);

// How a lease without a gate is asked for: shared, upgradeable, permits. Each is a holder of its own.
struct share {
  lock_mode mode = lock_mode::shared;
  std::uint64_t weight = 1;
  std::uint64_t capacity = rw_capacity;
};

// What a request takes from the (checked) options; the label stays theirs.
void copy_options(const acquire_options& from, request& to) noexcept;
request make_request(hold& target, const share& kind, const acquire_options& options);
result<lease> acquire_share(const std::shared_ptr<client_core>& core, const std::string& name,
                            const share& kind, const acquire_options& options);

// The lease that a std face gives back when it has several: a valid one if there is one, the last of them. To give back
// a lost one would leave the valid one taken although its user is done.
lease take_one(std::vector<lease>& from) noexcept;

// The word of a fresh hold goes idle -> acquiring here; publish() brings it to held.
std::uint64_t begin_alone(hold& target) noexcept;

// What an owner of the predecessor's holds becomes a lease of this client's.
result<lease> adopt(const std::shared_ptr<client_core>& core, const std::string& name,
                    const owner_id& owner);
// The other end of it: the store keeps the grant, and this process forgets it.
result<owner_id> leave_behind(lease& held);

struct lease_access {
  static lease make(std::shared_ptr<hold> state, const tenure& of) {
    lease out;
    out.token_ = of.token;
    out.generation_ = of.generation;
    out.hold_ = std::move(state);
    return out;
  }
  // The std face keeps one lease and fills it anew: no reference counting per lock.
  static void prepare(lease& target, std::shared_ptr<hold> state) {
    target.hold_ = std::move(state);
  }
  static void refill(lease& target, const tenure& with) noexcept {
    target.generation_ = with.generation;
    target.token_ = with.token;
  }
  static std::uint64_t generation(const lease& of) noexcept { return of.generation_; }
  static std::uint64_t take(lease& from) noexcept { return std::exchange(from.generation_, 0); }
  static std::shared_ptr<hold> take_state(lease& from) noexcept {
    return std::exchange(from.hold_, nullptr);
  }
  static const std::shared_ptr<hold>& state(const lease& of) noexcept { return of.hold_; }
};

}  // namespace holdfast::core
