// release, renew, downgrade: what a holder does.
#include "engines/file/file_engine.hpp"

#include "engines/common/modes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>

namespace holdfast::engines::file {

error not_held_error(std::string_view name) {
  return {errc::not_held,
          fmt::format("The lock \"{}\" is not held by this owner (any more); nothing was changed.",
                      name)};
}

result<void> file_engine::release(const grant& held, const call& limits) {
  if (is_forked()) return forked_error(store());
  if ((held.handle & entry_handle) == 0) {
    std::uint64_t word =
        fast_word(env_.prefix, held.owner.sequence, to_count(held.valid_from + held.ttl));
    record& in = store().record_at(where_of(held.handle));
    if (in.word.compare_exchange_strong(word, free_word(incarnation_of(held.handle)),
                                        std::memory_order_seq_cst, std::memory_order_relaxed)) {
      return {};
    }
  }
  return release_slowly(held, limits);
}

// Still in its word, but with another expiry than the grant says: a renewal overtook us.
bool file_engine::give_back_fast(record& in, const grant& held) noexcept {
  std::uint64_t word = in.word.load(std::memory_order_acquire);
  return tag_of(word) == word_tag::fast && notes_are_of(in, word, held.owner.sequence) &&
         in.word.compare_exchange_strong(word, free_word(incarnation_of(held.handle)));
}

result<void> file_engine::release_slowly(const grant& held, const call& limits) {
  locked_shard shard{env_, shard_with(held.handle)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  record* in = nullptr;
  if (entry* holder = shard.find_holder(held, in)) {
    shard.drop_holder(*in, *holder);
    shard.after_change(*in, env_.time.now());
    return {};
  }
  const bool is_record = (held.handle & entry_handle) == 0 && in != nullptr &&
                         in->incarnation == incarnation_of(held.handle);
  if (is_record && give_back_fast(*in, held)) return {};
  return not_held_error(held.name);
}

bool file_engine::contended(const grant& held) const noexcept {
  const bool is_entry = (held.handle & entry_handle) != 0;
  const offset where = where_of(held.handle);
  const record& in = store().record_at(is_entry ? store().entry_at(where).record.get() : where);
  return tag_of(in.word.load(std::memory_order_relaxed)) != word_tag::fast && in.waiter_count != 0;
}

// ---- renew

namespace {

// Some answers and some `unknown` are an answer; an error is for the case that nothing is known at all.
result<session_proof> unless_known(std::span<const renewal> batch, result<void> asked) {
  const bool any = std::any_of(batch.begin(), batch.end(), [](const renewal& lease) {
    return lease.answer != renewal::verdict::unknown;
  });
  if (any || asked) return session_proof{};
  return std::move(asked).error();
}

}  // namespace

result<session_proof> file_engine::renew(std::span<renewal> batch, const call& limits) {
  for (renewal& lease : batch) lease.answer = renewal::verdict::unknown;
  // First everything that can be had at once: a shard that is stuck may keep us until the others have run out.
  if (renew_all(batch, impatient(limits.stop))) return session_proof{};
  return unless_known(batch, renew_all(batch, limits));
}

void file_engine::start_renew(std::span<renewal> batch, const call& limits,
                              completion<session_proof>& done) noexcept {
  for (renewal& lease : batch) lease.answer = renewal::verdict::unknown;
  done.complete(unless_known(batch, renew_all(batch, impatient(limits.stop))));
}

// A verdict for each that has none yet, as far as its shard can be asked; each shard gets one chance. The error is that
// of the last one that could not.
result<void> file_engine::renew_all(std::span<renewal> batch, const call& limits) {
  if (is_forked()) return forked_error(store());
  std::bitset<shard_count> stuck;
  result<void> outcome;
  for (renewal& lease : batch) {
    if (lease.answer != renewal::verdict::unknown || renew_fast(lease)) continue;
    const auto shard = shard_with(lease.held->handle);
    if (stuck[shard]) continue;
    if (auto asked = renew_in_shard(lease, limits); !asked) {
      stuck.set(shard);
      outcome = std::move(asked);
    }
  }
  return outcome;
}

// An uncontended lock is prolonged where it stands. A lease past its expiry is lost, even if no other client wanted the
// lock yet.
bool file_engine::renew_fast(renewal& lease) noexcept {
  const grant& held = *lease.held;
  if ((held.handle & entry_handle) != 0) return false;
  record& in = store().record_at(where_of(held.handle));
  if (in.incarnation != incarnation_of(held.handle)) return false;
  std::uint64_t word = in.word.load(std::memory_order_acquire);
  if (tag_of(word) != word_tag::fast || !notes_are_of(in, word, held.owner.sequence)) return false;
  const std::int64_t sent = to_count(env_.time.now());
  if (sent > expiry_of(word, sent, longest_ttl.count())) return false;
  const std::uint64_t token = in.note_token;
  const std::int64_t expires = rounded_expiry(sent + held.ttl.count());
  const std::uint64_t next = fast_word(env_.prefix, held.owner.sequence, expires);
  if (!in.word.compare_exchange_strong(word, next)) return false;
  in.note_signature.publish(signature(next, held.owner.sequence, token));
  lease.answer = renewal::verdict::held;
  lease.valid_from = to_steady(expires - held.ttl.count());
  return true;
}

result<void> file_engine::renew_in_shard(renewal& lease, const call& limits) {
  const grant& held = *lease.held;
  locked_shard shard{env_, shard_with(held.handle)};
  if (auto locked = shard.lock(limits); !locked) return locked;
  record* in = nullptr;
  entry* found = shard.find_holder(held, in);
  const auto now = env_.time.now();
  lease.answer = renewal::verdict::lost;
  if (found == nullptr) return {};
  if (to_count(now) > found->expires) {
    shard.drop_holder(*in, *found);
    shard.after_change(*in, now);
    return {};
  }
  found->ttl = held.ttl.count();
  found->expires = to_count(now + held.ttl);
  // Made from our fast word by a client that did not know its owner; now everything is known.
  found->sequence = held.owner.sequence;
  found->token = held.token.value;
  found->flags = found->flags & ~entry_fast;
  lease.answer = renewal::verdict::held;
  lease.valid_from = now;
  return {};
}

// ---- downgrade

result<grant> file_engine::downgrade(const grant& held, lock_mode to, const call& limits) {
  if (is_forked()) return forked_error(store());
  locked_shard shard{env_, shard_with(held.handle)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  if (auto room = shard.reserve(1); !room) return room.error();
  if ((held.handle & entry_handle) == 0) {
    record& in = store().record_at(where_of(held.handle));
    const std::uint64_t word = in.word.load(std::memory_order_acquire);
    if (tag_of(word) == word_tag::fast && in.incarnation == incarnation_of(held.handle))
      shard.inflate(in);
  }
  record* in = nullptr;
  entry* holder = shard.find_holder(held, in);
  const auto now = env_.time.now();
  if (holder == nullptr || shard.is_gone(*holder, now)) return not_held_error(held.name);
  const auto weight = weight_of(to);
  if (weight > holder->weight) {
    return not_done{errc::misconfigured,
                    fmt::format("The lock \"{}\" is held as {}; it cannot be downgraded to {}.",
                                held.name, to_string(holder->mode), to_string(to))};
  }
  if ((holder->flags & entry_fast) != 0 || holder->ttl == 0) {
    holder->sequence = held.owner.sequence;
    holder->token = held.token.value;
    holder->ttl = held.ttl.count();
    holder->flags = holder->flags & ~entry_fast;
  }
  is_new(held.owner.sequence);
  shard.resize(*in, *holder, weight, to);
  const grant shrunk = granted(*holder, held.name, held.owner).granted;
  shard.after_change(*in, now);
  return shrunk;
}

}  // namespace holdfast::engines::file
