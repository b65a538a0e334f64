// enter and settle: the uncontended path, and the queue.
#include "engines/common/grant_rule.hpp"
#include "engines/common/sentences.hpp"
#include "engines/file/file_engine.hpp"

#include <algorithm>

namespace holdfast::engines::file {

namespace {

// Below this the word's coarse time would eat a noticeable part of the ttl.
constexpr nanoseconds shortest_fast_ttl = std::chrono::milliseconds{200};

}  // namespace

bool file_engine::may_be_fast(const request& ask) const noexcept {
  return ask.mode == lock_mode::exclusive && ask.capacity == rw_capacity &&
         ask.weight == rw_capacity && ask.replaces == nullptr && ask.ttl >= shortest_fast_ttl &&
         !ask.outlives_client;
}

result<entered> file_engine::enter(const request& ask, const call& limits) {
  if (is_forked()) return forked_error(store());
  const std::uint64_t memo = ask.memo == nullptr ? 0 : ask.memo->load(std::memory_order_relaxed);
  if (memo != 0 && may_be_fast(ask)) {
    fast_entry got;
    const taken how = take_fast(memo, ask, got);
    if (how == taken::yes) return granted(got, memo, ask);
    if (how == taken::doubtful) {
      const auto adopted = adopt(memo, ask, got, limits);
      if (!adopted) return adopted.error();
      if (*adopted) return **adopted;
    } else if (!ask.wait && is_surely_busy(ask, memo)) {
      return entered{};
    }
  }
  return enter_slowly(ask, limits);
}

// One compare-and-swap, and the token. `handle` says which record, and in which of its lives: if it has
// been given to another name meanwhile, its word is not the one we expect.
file_engine::taken file_engine::take_fast(std::uint64_t handle, const request& ask,
                                          fast_entry& out) noexcept {
  record& in = store().record_at(where_of(handle));
  const std::int64_t sent = to_count(env_.time.recent());
  out.expires = rounded_expiry(sent + ask.ttl.count());
  out.word = fast_word(env_.prefix, ask.owner.sequence, out.expires);
  std::uint64_t expected = free_word(incarnation_of(handle));
  if (!in.word.compare_exchange_strong(expected, out.word, std::memory_order_seq_cst,
                                       std::memory_order_relaxed)) {
    return taken::no;
  }
  out.token = in.token.fetch_add(1, std::memory_order_seq_cst) + 1;
  in.note_sequence = ask.owner.sequence;
  in.note_token = out.token;
  in.note_since = sent;
  if (ask.label.empty()) {
    in.note_label[0] = 0;
  } else {
    write_text(in.note_label, ask.label);
  }
  in.note_signature.publish(signature(out.word, ask.owner.sequence, out.token));
  // We may have been paused since the swap for longer than the ttl, and a holder that came later may have a smaller
  // token than we. If the word is still ours, none came.
  return in.word.load(std::memory_order_seq_cst) == out.word ? taken::yes : taken::doubtful;
}

// Copied from a blank and filled in where it is returned: to clear so large an object and to move it would
// take longer than the lock itself.
result<entered> file_engine::granted(const fast_entry& got, std::uint64_t handle,
                                     const request& ask) const {
  result<entered> out = blank_;
  grant& filled = out->granted;
  filled.name = ask.name;
  filled.owner = ask.owner;
  filled.token.value = got.token;
  filled.valid_from = to_steady(got.expires - ask.ttl.count());
  filled.ttl = ask.ttl;
  filled.handle = handle;
  return out;
}

// Our word was turned into an entry before we were done. If the entry is still there, it was ours all the time, so no
// holder had a token after ours. While the shard cannot be asked, it is in doubt.
result<std::optional<entered>> file_engine::adopt(std::uint64_t handle, const request& ask,
                                                  const fast_entry& got, const call& limits) {
  record& in = store().record_at(where_of(handle));
  locked_shard shard{env_, shard_with(handle)};
  if (auto locked = shard.lock(limits); !locked) {
    return error{errc::outcome_unknown, locked.error().message()};
  }
  if (in.incarnation != incarnation_of(handle)) return std::optional<entered>{};
  entry* holder = shard.find_owner(in, ask.owner.sequence, false);  // our notes were read in time
  if (holder == nullptr) holder = shard.find_fast(in, got.word);
  if (holder == nullptr) return std::optional<entered>{};
  holder->sequence = ask.owner.sequence;
  holder->token = got.token;
  holder->ttl = ask.ttl.count();
  write_text(holder->label, ask.label);
  holder->flags = holder->flags & ~entry_fast;
  shard.changed(in);
  return std::optional{granted(*holder, ask.name, ask.owner)};
}

// Another holder has it, lives, and has time left: no need to make its release slow by looking closer.
bool file_engine::is_surely_busy(const request& ask, std::uint64_t memo) const noexcept {
  const record& in = store().record_at(where_of(memo));
  const std::uint64_t word = in.word.load(std::memory_order_acquire);
  // The record may have been given to another name; then its incarnation is another one.
  if (tag_of(word) != word_tag::fast || in.incarnation != incarnation_of(memo)) return false;
  const auto holder = holder_of(word);
  if (holder.session == env_.self.session) {
    if (holder.sequence == low_bits(ask.owner.sequence, sequence_bits))
      return false;  // us, perhaps
  } else if (!may_be_alive(store().session_at(holder.session), holder.generation)) {
    return false;
  }
  const std::int64_t now = to_count(env_.time.now());
  return now <= expiry_of(word, now, longest_ttl.count()) &&
         in.word.load(std::memory_order_acquire) == word;
}

// ---- through the shard

// Owners are numbered upwards. One with a higher number than all that ever came to a queue need not be
// searched for among thousands of waiters.
bool file_engine::is_new(std::uint64_t sequence) noexcept {
  std::uint64_t newest = newest_.load(std::memory_order_relaxed);
  while (sequence > newest) {
    if (newest_.compare_exchange_weak(newest, sequence, std::memory_order_relaxed)) return true;
  }
  return false;
}

bool file_engine::notes_are_of(const record& in, std::uint64_t word,
                               std::uint64_t sequence) const noexcept {
  constexpr std::uint64_t session_mask =
      (std::uint64_t{1} << (2 + session_bits + generation_bits)) - 1;
  return (word & session_mask) == env_.prefix && in.note_sequence == sequence &&
         in.note_signature == signature(word, sequence, in.note_token);
}

result<entered> file_engine::enter_slowly(const request& ask, const call& limits) {
  const std::uint64_t hash = hash_name(seed_, ask.name);
  for (bool fast = may_be_fast(ask);; fast = false) {
    locked_shard shard{env_, shard_of(hash)};
    if (auto locked = shard.lock(limits); !locked) return locked.error();
    if (auto room = shard.reserve(2); !room) return room.error();
    const auto found = shard.find_or_create(record_kind::lock, ask.name, hash);
    if (!found) return found.error();
    record& in = **found;
    const auto handle = make_handle(store().offset_of(in), in.incarnation);
    if (ask.memo != nullptr) ask.memo->store(handle, std::memory_order_relaxed);
    if (!fast || tag_of(in.word.load(std::memory_order_acquire)) != word_tag::free) {
      shard.inflate(in);
      if (auto known = find_known(shard, in, ask)) return *known;
      return enter_queue(shard, in, ask);
    }
    shard.unlock();
    fast_entry got;
    const taken how = take_fast(handle, ask, got);
    if (how == taken::yes) return granted(got, handle, ask);
    if (how == taken::doubtful) {
      const auto adopted = adopt(handle, ask, got, limits);
      if (!adopted) return adopted.error();
      if (*adopted) return **adopted;
    }
  }
}

// Asked again: the same answer.
std::optional<entered> file_engine::find_known(locked_shard& shard, record& in, const request& ask,
                                               bool in_any_mode) {
  const bool is_first = is_new(ask.owner.sequence);
  if (!is_first) {
    const entry* waiter = shard.find_owner(in, ask.owner.sequence, true);
    if (waiter != nullptr) return waiting(*waiter, ask);
  }
  // A fast holder never came to a queue before, and is alone.
  if (!is_first || in.holder_count == 1) {
    const entry* holder = shard.find_owner(in, ask.owner.sequence, false);
    // In another mode it is what an upgrade begins with.
    const bool meant = holder != nullptr && (in_any_mode || holder->mode == ask.mode);
    if (meant && !shard.is_gone(*holder, env_.time.now())) {
      return granted(*holder, ask.name, ask.owner);
    }
  }
  return std::nullopt;
}

result<entered> file_engine::enter_queue(locked_shard& shard, record& in, const request& ask) {
  const auto now = env_.time.now();
  const auto give_back = [&](auto answer) -> result<entered> {
    shard.after_change(in, now);
    return answer;
  };
  const auto upgraded = [&]() -> entry* {
    record* where = nullptr;
    entry* holder = ask.replaces == nullptr ? nullptr : shard.find_holder(*ask.replaces, where);
    return where == &in && holder != nullptr && !shard.is_gone(*holder, now) ? holder : nullptr;
  };
  entry* base = upgraded();
  const auto fits_in = [&] {
    queue_state state{in.capacity, in.used};
    if (in.waiters != 0) {
      const entry& head = store().entry_at(in.waiters);
      state.upgrade_waiting = (head.flags & entry_upgrade) != 0;
      state.waiters_ahead = state.upgrade_waiting || head.priority >= ask.priority;
    }
    return may_enter(state, ask.weight, ask.order, base == nullptr ? 0 : base->weight.get());
  };
  const auto is_unused = [&] { return in.holder_count == 0 && in.waiters == 0; };

  if (is_unused()) in.capacity = ask.capacity;
  bool enters = in.capacity == ask.capacity && fits_in();
  if (!enters) {  // perhaps only the dead are in the way
    shard.reap(in, now);
    shard.serve(in, now);
    base = upgraded();
    if (is_unused()) in.capacity = ask.capacity;
    enters = in.capacity == ask.capacity && fits_in();
  }
  if (ask.replaces != nullptr && base == nullptr) return give_back(not_held_error(ask.name));
  if (in.capacity != ask.capacity || ask.weight > in.capacity) {
    return give_back(other_capacity(ask, in.capacity, "file:" + store().path()));
  }
  if (!enters && !ask.wait) return give_back(entered{});

  entry& added = shard.new_entry(in, ask.owner.sequence);
  added.mode = ask.mode;
  added.weight = ask.weight;
  added.ttl = ask.ttl.count();
  added.since = to_count(now);
  added.priority = ask.priority;
  write_text(added.label, ask.label);
  if (ask.outlives_client || (base != nullptr && (base->flags & entry_lasting) != 0)) {
    added.flags = entry_lasting;
    added.fast_word = client_mark();
  }
  if (base != nullptr) {
    added.flags = added.flags | entry_upgrade;
    added.replaces = store().offset_of(*base);
  }
  if (!enters) {
    shard.queue_up(in, added);
    return waiting(added, ask);
  }
  shard.grant_to(in, added, now);
  return give_back(granted(added, ask.name, ask.owner));
}

entered file_engine::granted(const entry& holder, std::string_view name,
                             const owner_id& owner) const noexcept {
  entered out;
  out.what = entered::kind::granted;
  out.granted = {name,
                 owner,
                 holder.mode,
                 holder.weight,
                 {holder.token},
                 to_steady(holder.expires - holder.ttl),
                 nanoseconds{holder.ttl},
                 entry_handle | make_handle(store().offset_of(holder), holder.serial)};
  return out;
}

entered file_engine::waiting(const entry& waiter, const request& ask) const noexcept {
  entered out;
  out.what = entered::kind::waiting;
  out.waiting.name = ask.name;
  out.waiting.owner = ask.owner;
  out.waiting.handle = entry_handle | make_handle(store().offset_of(waiter), waiter.serial);
  return out;
}

result<entered> file_engine::settle(const request& ask, const call& limits) {
  if (is_forked()) return forked_error(store());
  const std::uint64_t hash = hash_name(seed_, ask.name);
  locked_shard shard{env_, shard_of(hash)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  if (auto room = shard.reserve(1); !room) return room.error();
  record* in = shard.find(record_kind::lock, ask.name, hash);
  if (in == nullptr) return entered{};
  is_new(ask.owner.sequence);  // so that it is searched for
  shard.inflate(*in);
  const auto now = env_.time.now();
  shard.reap(*in, now);
  shard.serve(*in, now);
  shard.take_over(*in, ask.owner.sequence, client_mark());
  auto known = find_known(shard, *in, ask, true);
  shard.after_change(*in, now);
  return known.value_or(entered{});
}

}  // namespace holdfast::engines::file
