// await and leave: a thread in the queue.
#include "engines/file/file_engine.hpp"

#include <algorithm>

namespace holdfast::engines::file {

namespace {

// About as long as a hand-over between two running processes takes; sleeping and waking costs more.
constexpr int spins = 400;

inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool file_engine::is_at(const entry& waiter, const ticket& place) const noexcept {
  return incarnation_of(waiter.serial) == incarnation_of(place.handle) &&
         waiter.sequence == place.owner.sequence && waiter.session == env_.self.session &&
         waiter.generation == env_.self.generation;
}

// The grant lies in the entry itself, so a woken waiter needs no mutex. The entry may be reaped and get another owner
// while we read it; then its serial is another one.
std::optional<grant> file_engine::delivered(const entry& waiter,
                                            const ticket& place) const noexcept {
  if (waiter.state.get() != entry_state::holding || !is_at(waiter, place)) return std::nullopt;
  const grant got = granted(waiter, place.name, place.owner).granted;
  if (waiter.state != entry_state::holding || !is_at(waiter, place)) return std::nullopt;
  return got;
}

result<progress> file_engine::await(const ticket& place, const call& limits) {
  if (is_forked()) return forked_error(store());
  entry& waiter = store().entry_at(where_of(place.handle));
  for (int i = 0; can_spin_ && i < spins; ++i) {
    if (waiter.state.get() != entry_state::waiting) break;
    relax();
  }
  if (const auto got = delivered(waiter, place)) return progress{true, *got};

  std::optional<std::stop_callback<wake_on_stop>> on_stop;
  if (limits.stop.stop_possible()) on_stop.emplace(limits.stop, wake_on_stop{&waiter});
  wait_set waiting_on;
  for (;;) {
    // First the note that we sleep, then the look: a client that changes something after the look sees the note.
    const std::uint32_t seen = waiter.wake.fetch_or(1, std::memory_order_acq_rel) | 1;
    waiting_on.clear();
    auto now = look(place, 0, limits);
    const bool over = now && (now->done || limits.stop.stop_requested() ||
                              env_.time.now() >= std::min(limits.deadline, place.recheck_at));
    if (!now || over) {
      waiter.wake.fetch_and(~1U, std::memory_order_acq_rel);
      if (!now) return now.error();
      return progress{now->granted.has_value(), now->granted.value_or(grant{})};
    }
    for (const auto session : now->monitored()) waiting_on.monitor(store().session_at(session));
    waiting_on.not_after(std::min({now->again, limits.deadline, place.recheck_at}));
    waiting_on.not_after(env_.time.now() + back_stop);
    waiting_on.sleep(env_, waiter.wake, seen);
    waiter.wake.fetch_and(~1U, std::memory_order_acq_rel);
    if (const auto got = delivered(waiter, place)) return progress{true, *got};
  }
}

// One look at a place in the queue, under the mutex: clears the dead out of the way, and says whom to monitor.
result<look_result> file_engine::look(const ticket& place, std::uint32_t cookie,
                                      const call& limits) {
  entry& waiter = store().entry_at(where_of(place.handle));
  locked_shard shard{env_, shard_with(place.handle)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  look_result out;
  const auto is_waiting = [&] {
    return waiter.state == entry_state::waiting && is_at(waiter, place);
  };
  if (is_waiting()) {
    record& in = store().record_at(waiter.record);
    const auto now = env_.time.now();
    shard.reap(in, now);
    shard.serve(in, now);
    while (waiter.prev != 0 && is_waiting()) {
      entry& before = store().entry_at(waiter.prev);
      if (is_alive(store().session_at(before.session), before.generation)) break;
      shard.drop_waiter(in, before);
    }
    waiter.cookie = cookie;
    if (is_waiting()) choose_monitored(shard, in, waiter, env_.self.session, out);
    shard.after_change(in, now);
    if (is_waiting()) return out;
  }
  out.done = true;
  out.granted = delivered(waiter, place);
  return out;
}

result<void> file_engine::leave(const ticket& place, const call& limits) {
  if (is_forked()) return forked_error(store());
  entry& waiter = store().entry_at(where_of(place.handle));
  locked_shard shard{env_, shard_with(place.handle)};
  if (auto locked = shard.lock(limits); !locked) return locked;
  if (waiter.state == entry_state::free || !is_at(waiter, place)) return {};
  record& in = store().record_at(waiter.record);
  const auto now = env_.time.now();
  if (waiter.state == entry_state::waiting) {
    shard.drop_waiter(in, waiter);
  } else if (waiter.replaces != 0) {
    shard.end_upgrade(in, waiter, now);
  } else if (!place.replacing) {  // what it replaced is gone, so the grant stays
    shard.drop_holder(in, waiter);
  }
  shard.after_change(in, now);
  return {};
}

}  // namespace holdfast::engines::file
