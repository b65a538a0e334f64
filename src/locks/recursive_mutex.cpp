#include <holdfast/recursive_mutex.hpp>

#include "core/async_acquire.hpp"
#include "locks/checks.hpp"

#include <atomic>
#include <thread>

namespace holdfast {

using core::lease_access;

namespace core {

// Which thread owns the lock through this handle, and as which generation. A stale entry does no harm: re-entering a
// generation that is no longer held fails.
class reentrant {
 public:
  explicit reentrant(std::shared_ptr<gate> g) : gate_(std::move(g)) {}

  const std::shared_ptr<gate>& at() const noexcept { return gate_; }
  // The generation if the calling thread owns it, else 0. Never that of the next owner, which may be writing itself
  // down at this moment: a thread that reads its generation finds in the second look that the lock had no owner.
  std::uint64_t mine() const noexcept {
    const auto me = std::this_thread::get_id();
    if (owner_.load(std::memory_order_relaxed) != me) return 0;
    const auto out = generation_.load(std::memory_order_acquire);
    return owner_.load(std::memory_order_relaxed) == me ? out : 0;
  }
  void own(std::thread::id thread, std::uint64_t generation) noexcept {
    owner_.store({}, std::memory_order_relaxed);
    generation_.store(generation, std::memory_order_release);
    owner_.store(thread, std::memory_order_release);
  }
  // Nothing: the calling thread does not hold it.
  std::optional<tenure> reenter() {
    const auto born = mine();
    return born == 0 ? std::nullopt : gate_->reenter(born);
  }
  result<tenure> enter(const acquire_options& options) {
    if (const auto again = reenter()) return *again;
    auto got = gate_->acquire(options);
    if (got) own(std::this_thread::get_id(), got->generation);
    return got;
  }

 private:
  std::shared_ptr<gate> gate_;
  std::atomic<std::thread::id> owner_{};
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace core

recursive_mutex::recursive_mutex(const client& store, std::string name, acquire_options defaults)
    : defaults_(locks::checked_or_throw(store, name, std::move(defaults))),
      state_(std::make_shared<core::reentrant>(store.core()->gate_for(name))) {}

recursive_mutex::~recursive_mutex() = default;

const std::string& recursive_mutex::name() const noexcept { return state_->at()->name; }

void recursive_mutex::lock() { state_->enter(defaults_).value(); }

bool recursive_mutex::try_lock() { return lock_within(nanoseconds::zero()); }

bool recursive_mutex::lock_within(nanoseconds wait) {
  auto options = defaults_;
  options.wait = wait;
  const auto got = state_->enter(options);
  if (got) return true;
  if (locks::is_no(got.error().code())) return false;
  throw lock_error(got.error());
}

void recursive_mutex::unlock() noexcept {
  const auto& gate = state_->at();
  const auto answer = gate->release(state_->mine(), core::hold::confirmation::not_awaited);
  if (!answer) gate->core->tell_release_failed(gate->name, answer.error());
}

result<lease> recursive_mutex::acquire(const acquire_options& asked) {
  auto options = state_->at()->core->checked(asked);
  if (!options) return std::move(options).error();
  auto got = state_->enter(*options);
  if (!got) return std::move(got).error();
  return lease_access::make(state_->at(), *got);
}

result<lease> recursive_mutex::try_acquire() {
  auto options = defaults_;
  options.wait = nanoseconds::zero();
  return acquire(options);
}

async<lease> recursive_mutex::async_acquire(const acquire_options& options) {
  const auto& gate = state_->at();
  if (const auto again = state_->reenter())
    return core::ready_lease(core::handle_of(gate), lease_access::make(gate, *again));
  return core::async_exclusive(gate, options, [state = state_](std::uint64_t generation) {
    state->own(std::this_thread::get_id(), generation);
  });
}

unsigned recursive_mutex::depth() const noexcept {
  const auto born = state_->mine();
  if (born == 0 || !state_->at()->is_current(born)) return 0;
  return 1 + state_->at()->entries.load(std::memory_order_relaxed);
}

}  // namespace holdfast
