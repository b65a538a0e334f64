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

bool file_engine::is_at(const entry& one, const ticket& place) const noexcept {
  return incarnation_of(one.serial) == incarnation_of(place.handle) &&
         one.sequence == place.owner.sequence && one.session == env_.self.session &&
         one.generation == env_.self.generation;
}

// The grant lies in the entry itself, so whoever is woken needs no mutex. The entry may be reaped and get
// another owner while we read it; then its serial is another one.
std::optional<grant> file_engine::delivered(const entry& one, const ticket& place) const noexcept {
  if (one.state.get() != entry_state::holding || !is_at(one, place)) return std::nullopt;
  const grant got = granted(one, place.name, place.owner).granted;
  if (one.state != entry_state::holding || !is_at(one, place)) return std::nullopt;
  return got;
}

result<progress> file_engine::await(const ticket& place, const call& limits) {
  if (is_forked()) return forked_error(store());
  entry& one = store().entry_at(where_of(place.handle));
  for (int i = 0; can_spin_ && i < spins; ++i) {
    if (one.state.get() != entry_state::waiting) break;
    relax();
  }
  if (const auto got = delivered(one, place)) return progress{true, *got};

  std::optional<std::stop_callback<wake_on_stop>> on_stop;
  if (limits.stop.stop_possible()) on_stop.emplace(limits.stop, wake_on_stop{&one});
  wait_set waiting_on;
  for (;;) {
    // First the note that we sleep, then the look: whoever changes something after the look sees the note.
    const std::uint32_t seen = one.wake.fetch_or(1, std::memory_order_acq_rel) | 1;
    waiting_on.clear();
    auto now = look(place, 0, limits);
    const bool over = now && (now->done || limits.stop.stop_requested() ||
                              env_.time.now() >= std::min(limits.deadline, place.recheck_at));
    if (!now || over) {
      one.wake.fetch_and(~1U, std::memory_order_acq_rel);
      if (!now) return now.error();
      return progress{now->granted.has_value(), now->granted.value_or(grant{})};
    }
    for (const auto session : now->monitored()) waiting_on.monitor(store().session_at(session));
    waiting_on.not_after(std::min({now->again, limits.deadline, place.recheck_at}));
    waiting_on.not_after(env_.time.now() + back_stop);
    waiting_on.sleep(env_, one.wake, seen);
    one.wake.fetch_and(~1U, std::memory_order_acq_rel);
    if (const auto got = delivered(one, place)) return progress{true, *got};
  }
}

// One look at a place in the queue, under the mutex: clears the dead out of the way, and says whom to monitor.
result<look_result> file_engine::look(const ticket& place, std::uint32_t cookie,
                                      const call& limits) {
  entry& one = store().entry_at(where_of(place.handle));
  locked_shard at{env_, shard_with(place.handle)};
  if (auto locked = at.lock(limits); !locked) return locked.error();
  look_result out;
  const auto is_waiting = [&] { return one.state == entry_state::waiting && is_at(one, place); };
  if (is_waiting()) {
    record& in = store().record_at(one.record);
    const auto now = env_.time.now();
    at.reap(in, now);
    at.serve(in, now);
    while (one.prev != 0 && is_waiting()) {
      entry& before = store().entry_at(one.prev);
      if (is_alive(store().session_at(before.session), before.generation)) break;
      at.drop_waiter(in, before);
    }
    one.cookie = cookie;
    if (is_waiting()) choose_monitored(at, in, one, env_.self.session, out);
    at.after_change(in, now);
    if (is_waiting()) return out;
  }
  out.done = true;
  out.granted = delivered(one, place);
  return out;
}

result<void> file_engine::leave(const ticket& place, const call& limits) {
  if (is_forked()) return forked_error(store());
  entry& one = store().entry_at(where_of(place.handle));
  locked_shard at{env_, shard_with(place.handle)};
  if (auto locked = at.lock(limits); !locked) return locked;
  if (one.state == entry_state::free || !is_at(one, place)) return {};
  record& in = store().record_at(one.record);
  const auto now = env_.time.now();
  if (one.state == entry_state::waiting) {
    at.drop_waiter(in, one);
  } else if (one.replaces != 0) {
    at.end_upgrade(in, one, now);
  } else if (!place.replacing) {  // what it replaced is gone, so the grant stays
    at.drop_holder(in, one);
  }
  at.after_change(in, now);
  return {};
}

}  // namespace holdfast::engines::file
