// inspect, list, list_counters, revoke: the operators' view.
#include "engines/file/file_engine.hpp"

#include <algorithm>
#include <optional>
#include <string>

namespace holdfast::engines::file {

namespace {

std::string_view name_of(const record& in) { return {in.name.data(), in.name_length}; }

// The client of a session, as long as it still is the one that the entry means.
void describe_session(session& client, std::uint32_t generation, holder_info& out) {
  out.owner.client = {client.nonce[0].get(), client.nonce[1].get()};
  out.pid = client.pid;
  out.host = read_text(client.host);
  if (client.generation.load(std::memory_order_acquire) == generation) return;
  out.owner.client = {};
  out.pid = 0;
  out.host.clear();
}

// The client that looks, by itself and by the mark on what outlives its sessions.
struct looking_client {
  std::array<std::uint64_t, 2> client;
  std::uint64_t mark;
};

// What was left for us to adopt is ours also when another client has the slot of the session that left it.
holder_info describe_entry(mapping& store, const entry& described, const looking_client& own,
                           steady_time now) {
  holder_info out;
  describe_session(store.session_at(described.session), described.generation, out);
  if ((described.flags & entry_lasting) != 0 && described.fast_word == own.mark)
    out.owner.client = own.client;
  out.owner.sequence = described.sequence;
  out.mode = described.mode;
  out.weight = described.weight;
  out.age = now - to_steady(described.since);
  out.priority = described.priority;
  out.label = read_text(described.label);
  if (described.state == entry_state::holding) {
    out.token.value = described.token;
    out.expires_in = to_steady(described.expires) - now;
  }
  return out;
}

// A fast holder writes its notes after it has the lock; until they fit the word, less is known about it.
holder_info describe_fast(mapping& store, const record& in, std::uint64_t word, steady_time now) {
  const auto holder = holder_of(word);
  session& client = store.session_at(holder.session);
  holder_info out;
  describe_session(client, client.generation.load(), out);
  out.weight = rw_capacity;
  out.expires_in = to_steady(expiry_of(word, to_count(now), longest_ttl.count())) - now;
  out.owner.sequence = holder.sequence;
  const std::uint64_t sequence = in.note_sequence, token = in.note_token;
  const std::int64_t since = in.note_since;
  std::string label = read_text(in.note_label);
  if (in.note_signature.get() == signature(word, sequence, token)) {
    out.owner.sequence = sequence;
    out.token.value = token;
    out.age = now - to_steady(since);
    out.label = std::move(label);
  }
  return out;
}

bool is_live_fast(mapping& store, std::uint64_t word, steady_time now) {
  if (tag_of(word) != word_tag::fast) return false;
  const auto holder = holder_of(word);
  return may_be_alive(store.session_at(holder.session), holder.generation) &&
         to_count(now) <= expiry_of(word, to_count(now), longest_ttl.count());
}

lock_info describe(locked_shard& shard, const record& in, const looking_client& own,
                   steady_time now) {
  mapping& store = shard.store();
  lock_info out;
  out.name = name_of(in);
  const std::uint64_t word = in.word.load(std::memory_order_acquire);
  out.version = shard.version_of(in, now);
  if (is_live_fast(store, word, now)) {
    out.capacity = rw_capacity;
    out.holders.push_back(describe_fast(store, in, word, now));
    return out;
  }
  for (offset e = in.holders; e != 0; e = store.entry_at(e).next) {
    const entry& holder = store.entry_at(e);
    if ((holder.flags & entry_replaced) != 0 || shard.is_gone(holder, now)) continue;
    out.holders.push_back(describe_entry(store, holder, own, now));
  }
  std::sort(out.holders.begin(), out.holders.end(),
            [](const holder_info& a, const holder_info& b) { return a.token < b.token; });
  for (offset e = in.waiters; e != 0; e = store.entry_at(e).next) {
    const entry& waiter = store.entry_at(e);
    if (!is_alive(store.session_at(waiter.session), waiter.generation)) continue;
    out.waiters.push_back(describe_entry(store, waiter, own, now));
  }
  if (!out.holders.empty() || !out.waiters.empty()) out.capacity = in.capacity;
  return out;
}

}  // namespace

result<lock_info> file_engine::inspect(std::string_view name, const call& limits) {
  if (is_forked()) return forked_error(store());
  const std::uint64_t hash = hash_name(seed_, name);
  locked_shard shard{env_, shard_of(hash)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  record* in = shard.find(record_kind::lock, name, hash);
  if (in != nullptr) {
    const auto now = env_.time.now();
    if (shard.reap(*in, now)) shard.after_change(*in, now);
    return describe(shard, *in, {config_.client, client_mark()}, now);
  }
  lock_info nothing;
  nothing.name = name;
  return nothing;
}

// The first by name of what `look` finds in a record that is in use, over all shards.
template <class Info, class Look>
result<std::vector<Info>> file_engine::gather(std::size_t limit, const call& limits, Look look) {
  if (is_forked()) return forked_error(store());
  std::vector<Info> out;
  const auto by_name = [](const Info& a, const Info& b) { return a.name < b.name; };
  for (std::uint32_t i = 0; i < shard_count; ++i) {
    if (store().shard_at(i).chunks == 0) continue;
    locked_shard shard{env_, i};
    if (auto locked = shard.lock(limits); !locked) return locked.error();
    shard.for_each_record([&](record& in) {
      const word_tag tag = tag_of(in.word.load(std::memory_order_acquire));
      if (tag == word_tag::closed || tag == word_tag::free) return;
      if (std::optional<Info> found = look(shard, in)) out.push_back(std::move(*found));
    });
    if (out.size() > 1024 &&
        (out.size() - 1024) / 2 > limit) {  // keep only what can still be among the first
      std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(limit), out.end(),
                       by_name);
      out.resize(limit);
    }
  }
  std::sort(out.begin(), out.end(), by_name);
  if (out.size() > limit) out.resize(limit);
  return out;
}

result<std::vector<lock_info>> file_engine::list(std::string_view prefix, std::size_t limit,
                                                 const call& limits) {
  return gather<lock_info>(
      limit, limits, [&](locked_shard& shard, const record& in) -> std::optional<lock_info> {
        if (in.kind != record_kind::lock || !name_of(in).starts_with(prefix)) return std::nullopt;
        auto info = describe(shard, in, {config_.client, client_mark()}, env_.time.now());
        if (info.holders.empty() && info.waiters.empty()) return std::nullopt;
        return info;
      });
}

result<std::vector<counter_info>> file_engine::list_counters(std::string_view prefix,
                                                             std::size_t limit,
                                                             const call& limits) {
  return gather<counter_info>(
      limit, limits,
      [&](const locked_shard& shard, const record& in) -> std::optional<counter_info> {
        if (in.kind != record_kind::counter || !shard.has_counter(in)) return std::nullopt;
        if (!name_of(in).starts_with(prefix)) return std::nullopt;
        const bool for_ever = in.keep == nanoseconds::max().count();
        const auto left =
            for_ever ? no_expiry : nanoseconds{in.changed + in.keep - wall_nanoseconds()};
        return counter_info{std::string{name_of(in)}, in.value, left};
      });
}

result<std::size_t> file_engine::revoke(std::string_view name, const call& limits) {
  if (is_forked()) return forked_error(store());
  const std::uint64_t hash = hash_name(seed_, name);
  locked_shard shard{env_, shard_of(hash)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  if (auto room = shard.reserve(1); !room) return room.error();
  record* in = shard.find(record_kind::lock, name, hash);
  if (in == nullptr) return std::size_t{0};
  const auto now = env_.time.now();
  shard.inflate(*in);
  shard.reap(*in, now);
  std::size_t ended = 0;
  while (in->holders != 0) {
    entry* holder = &store().entry_at(in->holders);
    // A base that is not the first goes with its upgrade; if it is the first, look behind it.
    while ((holder->flags & entry_replaced) != 0 && holder->next != 0)
      holder = &store().entry_at(holder->next);
    shard.tell_lost(*holder, true);
    shard.drop_holder(*in, *holder);
    ++ended;
  }
  // Every later token is above all given so far, also when the lock was free.
  in->token.fetch_add(1, std::memory_order_seq_cst);
  shard.changed(*in);
  shard.after_change(*in, now);
  return ended;
}

}  // namespace holdfast::engines::file
