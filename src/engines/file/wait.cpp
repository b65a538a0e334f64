#include "engines/file/wait.hpp"

#include <algorithm>
#include <climits>

namespace holdfast::engines::file {

namespace {

constexpr std::chrono::hours longest_sleep{1};

}  // namespace

void wait_set::monitor(session& client) noexcept {
  if (count_ == most) return;  // the back-stop looks after the rest
  futex_word& life = life_word(client);
  std::uint32_t value = life.load(std::memory_order_acquire);
  // Without this flag the kernel wakes no waiter when the owner dies.
  while (says_alive(value) && (value & FUTEX_WAITERS) == 0) {
    if (life.compare_exchange_weak(value, value | FUTEX_WAITERS, std::memory_order_acq_rel)) {
      value |= FUTEX_WAITERS;
    }
  }
  if (says_alive(value)) {
    monitored_[count_++] = {&life, value};
  } else {
    until_ = steady_time::min();  // it died this very moment: do not sleep at all
  }
}

void wait_set::sleep(const environment& env, futex_word& own, std::uint32_t seen) noexcept {
  // Times are on the engine's clock, which a test may move by hand; the kernel sleeps on the real one.
  if (until_ == steady_time::min()) return;
  auto length = until_ - env.time.now();
  if (length <= nanoseconds::zero()) return;
  // For ever would be beyond the end of the clock.
  length = std::min<nanoseconds>(length, longest_sleep);
  if (!env.can_wait_any && count_ > 0) length = std::min<nanoseconds>(length, look_again);
  const auto end = (std::chrono::steady_clock::now() + length).time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(end);
  const timespec deadline{seconds.count(), static_cast<long>(nanoseconds{end - seconds}.count())};
  if (!env.can_wait_any || count_ == 0) {
    futex_wait(own, seen, &deadline);
  } else {
    std::array<futex_waitv_item, most + 1> items;
    items[0] = {seen, address_of(own), futex_32_bits_shared, 0};
    for (std::size_t i = 0; i < count_; ++i) {
      items[i + 1] = {monitored_[i].value, address_of(*monitored_[i].life), futex_32_bits_shared,
                      0};
    }
    futex_wait_any(items.data(), static_cast<unsigned>(count_ + 1), &deadline);
  }
  for (std::size_t i = 0; i < count_; ++i) {
    futex_word& life = *monitored_[i].life;
    if (!says_alive(life.load(std::memory_order_acquire))) futex_wake(life, INT_MAX);
  }
}

void choose_monitored(locked_shard& shard, const record& in, entry& waiter, std::uint32_t self,
                      look_result& out) noexcept {
  mapping& store = shard.store();
  const auto monitor = [&](std::uint32_t session) {
    if (session != self && out.count < out.sessions.size()) out.sessions[out.count++] = session;
  };
  if (waiter.state == entry_state::waiting && waiter.prev != 0) {
    const entry& before = store.entry_at(waiter.prev);
    waiter.monitors = before.serial;
    monitor(before.session);
    return;
  }
  const entry* only = in.holder_count == 1 ? &store.entry_at(in.holders) : nullptr;
  const bool simple = only != nullptr && waiter.cookie == 0 && (only->flags & entry_replaced) == 0;
  waiter.monitors = simple ? only->serial.get() : monitors_holders | in.additions;
  for (offset h = in.holders; h != 0; h = store.entry_at(h).next) {
    const entry& holder = store.entry_at(h);
    if ((holder.flags & entry_replaced) != 0) continue;
    // The death of a session ends no lasting one. But one that dies while it gives its lock to us may not have told us.
    if ((holder.flags & entry_lasting) == 0 ||
        is_alive(store.session_at(holder.session), holder.generation))
      monitor(holder.session);
    out.again = std::min(out.again, to_steady(holder.expires + 1));
  }
}

}  // namespace holdfast::engines::file
