#include "engines/file/shard.hpp"

#include "engines/file/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace holdfast::engines::file {

namespace {

// The mutex is held for microseconds. Only a process that was stopped or frozen right then keeps it longer. No caller
// waits longer than it must for the word that this is so: core asks again as long as its own caller wants it to.
constexpr nanoseconds shard_timeout = std::chrono::milliseconds{500};
// A deadline that is over must not fail a call that would only have waited for a moment.
constexpr nanoseconds a_moment = std::chrono::milliseconds{10};
constexpr nanoseconds stuck_for = std::chrono::milliseconds{100};

}  // namespace

// Multiply and fold over words, seeded per file, so that no user can choose names that all meet in one bucket.
std::uint64_t hash_name(std::uint64_t seed, std::string_view name) noexcept {
  constexpr std::uint64_t factor = 0x9FB21C651E98DF25U;
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    a = (a ^ a >> 32) * b;
    return a ^ a >> 29;
  };
  std::uint64_t sum = seed ^ name.size() * factor;
  while (!name.empty()) {
    std::uint64_t word = 0;
    const auto part = std::min(name.size(), sizeof word);
    std::memcpy(&word, name.data(), part);
    sum = fold(sum ^ word, factor | 1);
    name.remove_prefix(part);
  }
  return fold(sum ^ sum >> 32, factor);
}

// The driver of a client asks about many shards in turn: a stuck one may cost it one moment, not one for each question.
int locked_shard::wait_for_mutex(const call& limits) noexcept {
  const auto now = std::chrono::steady_clock::now();
  const bool in_a_hurry = limits.deadline <= now;
  auto& stuck_until = env_.stuck_until[index_];
  if (in_a_hurry && to_count(now) < stuck_until.load(std::memory_order_relaxed)) return ETIMEDOUT;
  const auto limit = in_a_hurry
                         ? a_moment
                         : std::clamp<nanoseconds>(limits.deadline - now, a_moment, shard_timeout);
  const int got = lock_within(shard_.mutex, limit);
  if (got == ETIMEDOUT) {
    stuck_until.store(to_count(std::chrono::steady_clock::now() + stuck_for),
                      std::memory_order_relaxed);
  }
  return got;
}

result<void> locked_shard::lock(const call& limits) {
  int got = pthread_mutex_trylock(&shard_.mutex);
  if (got == EBUSY) got = wait_for_mutex(limits);
  if (got != 0 && got != EOWNERDEAD) {
    return error{
        errc::unavailable,
        fmt::format("The store {} does not answer: another process has been busy in it for too "
                    "long; perhaps it is stopped ({}).",
                    store_.path(), std::strerror(got))};
  }
  locked_ = true;
  if (got == EOWNERDEAD) {
    // The mutex forgets the crash as soon as a client says so, and that may be one that cannot rebuild the shard: so
    // the file remembers it. Killed in between, the next client gets the same answer from the mutex again.
    shard_.needs_rebuild.publish(1);
    pthread_mutex_consistent(&shard_.mutex);
  }
  if (!store_.sees_everything()) {
    return error{
        errc::unavailable,
        fmt::format("The store {} was enlarged beyond the max_size of this client by another one; "
                    "open it again.",
                    store_.path())};
  }
  if (shard_.needs_rebuild != 0) after_crash();
  return {};
}

void locked_shard::unlock() noexcept {
  if (!locked_) return;
  locked_ = false;
  pthread_mutex_unlock(&shard_.mutex);
  flush();
}

// A client was killed while it had the mutex. If we are killed in here, the next one finds the same.
void locked_shard::after_crash() noexcept {
  rebuild(store_, index_);
  shard_.rebuilds = shard_.rebuilds + 1;
  shard_.needs_rebuild.publish(0);
  const auto now = env_.time.now();
  for_each_record([this, now](record& in) {
    if (in.word.load(std::memory_order_acquire) != slow_word) return;
    changed(in);
    after_change(in, now);
    // It may have granted or removed something and not lived to say so.
    for (offset e = in.holders; e != 0; e = at(e).next) wake(at(e));
    for (offset e = in.waiters; e != 0; e = at(e).next) wake(at(e));
  });
}

void locked_shard::notify(const notice& pending) noexcept {
  if (notice_count_ == notices_.size()) flush();
  notices_[notice_count_++] = pending;
}

void locked_shard::flush() noexcept {
  for (std::uint32_t i = 0; i < notice_count_; ++i) {
    const notice& pending = notices_[i];
    // The entry may have another owner by now; a needless wake-up is harmless.
    if (pending.waiter != nullptr) {
      wake_now(*pending.waiter);
    } else {
      send_message(store_.session_at(pending.session), pending.cookie, pending.payload);
    }
  }
  notice_count_ = 0;
}

void locked_shard::wake(entry& waiter) noexcept {
  const std::uint32_t cookie = waiter.cookie;
  if (cookie == 0) {
    notify({&waiter, 0, 0, 0});
  } else {
    notify({nullptr, waiter.session, cookie, 0});
  }
}

void locked_shard::tell_lost(const entry& holder, bool revoked) noexcept {
  session& client = store_.session_at(holder.session);
  if ((holder.flags & entry_fast) != 0 || !is_alive(client, holder.generation)) return;
  const std::uint32_t generation = holder.generation & (lost_revoked - 1);
  notify({nullptr, holder.session, lost_cookie | (revoked ? lost_revoked : 0) | generation,
          holder.sequence});
}

// ---- versions

void locked_shard::changed(record& in) noexcept {
  in.version = ++shard_.last_version;
  for (offset e = in.watchers; e != 0; e = at(e).next) wake(at(e));
}

std::uint64_t locked_shard::version_of(const record& in, steady_time now) const noexcept {
  const std::uint64_t word = in.word.load(std::memory_order_acquire);
  bool held = false;
  if (tag_of(word) == word_tag::fast) {
    const auto holder = holder_of(word);
    held = may_be_alive(store_.session_at(holder.session), holder.generation) &&
           to_count(now) <= expiry_of(word, to_count(now), longest_ttl.count());
  }
  for (offset e = in.holders; e != 0 && !held; e = at(e).next) held = !is_gone(at(e), now);
  if (!held) return 0;
  return in.version * 0x9E3779B97F4A7C15U + in.token.load(std::memory_order_acquire);
}

bool locked_shard::has_counter(const record& in) const noexcept {
  return in.exists != 0 && wall_nanoseconds() - in.changed < in.keep;
}

}  // namespace holdfast::engines::file
