// Counters, and watching over a lock's holders or a counter.
#include "engines/common/counter_rule.hpp"
#include "engines/file/file_engine.hpp"

#include <algorithm>

namespace holdfast::engines::file {

namespace {

// Under the shard's mutex. The version goes first: killed in between, watchers look once for nothing.
bool apply(locked_shard& shard, record& in, const counter_request& ask) {
  const bool exists = shard.has_counter(in);
  const auto change = change_of(ask, exists ? std::optional{in.value} : std::nullopt);
  if (change.what == counter_change::kind::none) return change.applied;
  shard.changed(in);
  if (change.what == counter_change::kind::erase) {
    in.exists.publish(0);
    return true;
  }
  if (ask.keep > nanoseconds::zero()) {
    in.keep = ask.keep.count();
  } else if (!exists) {
    in.keep = nanoseconds::max().count();
  }
  in.changed = wall_nanoseconds();
  in.value = change.value;
  in.exists.publish(1);
  return true;
}

}  // namespace

result<counter> file_engine::count(const counter_request& ask, const call& limits) {
  if (is_forked()) return forked_error(store());
  const std::uint64_t hash = hash_name(seed_, ask.name);
  locked_shard shard{env_, shard_of(hash)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  record* in = shard.find(record_kind::counter, ask.name, hash);
  const bool makes = ask.op == counter_op::create || ask.op == counter_op::store;
  if (in == nullptr && makes) {
    const auto made = shard.find_or_create(record_kind::counter, ask.name, hash);
    if (!made) return made.error();
    in = *made;
  }
  counter out;
  if (in == nullptr) {
    out.applied = ask.op == counter_op::read;
    return out;
  }
  out.applied = apply(shard, *in, ask);
  out.exists = shard.has_counter(*in);
  if (out.exists) {
    out.value = in->value;
    out.version = in->version;
  }
  return out;
}

// ---- watch

// One look. True when it is no longer what was seen; else our entry is there and will be told.
result<bool> file_engine::look_at(watched& what, std::uint32_t cookie, const call& limits,
                                  look_result& out) {
  const bool is_lock = what.kind == watch_kind::lock;
  const auto kind = is_lock ? record_kind::lock : record_kind::counter;
  const std::uint64_t hash = hash_name(seed_, what.name);
  locked_shard shard{env_, shard_of(hash)};
  if (auto locked = shard.lock(limits); !locked) return locked.error();
  if (auto room = shard.reserve(2); !room) return room.error();
  const auto found = shard.find_or_create(kind, what.name, hash);
  if (!found) return found.error();
  record& in = **found;
  const auto now = env_.time.now();
  std::uint64_t version = 0;
  if (is_lock) {
    // Uncontended holders wake no watcher, so a watched lock is never in that state.
    shard.inflate(in);
    shard.reap(in, now);
    shard.serve(in, now);
    version = shard.version_of(in, now);
  } else if (shard.has_counter(in)) {
    version = in.version;
    if (in.keep != nanoseconds::max().count()) {
      out.again =
          now + std::max(nanoseconds{in.changed + in.keep - wall_nanoseconds()}, nanoseconds{0});
    }
  }
  entry* mine = what.handle == 0 ? nullptr : &store().entry_at(where_of(what.handle));
  if (version != what.seen) {
    if (mine != nullptr) shard.drop_watcher(in, *mine);
    what.handle = 0;
    shard.after_change(in, now);
    return true;
  }
  if (mine == nullptr) {
    mine = &shard.new_entry(in, 0);
    mine->cookie = cookie;
    what.handle = make_handle(store().offset_of(*mine), mine->serial);
    shard.add_watcher(in, *mine);
  }
  if (is_lock) choose_monitored(shard, in, *mine, env_.self.session, out);
  shard.after_change(in, now);
  return false;
}

void file_engine::stop_watching(watched& what, const call& limits) noexcept {
  if (what.handle == 0) return;
  locked_shard shard{env_, shard_with(what.handle)};
  if (!shard.lock(limits)) return;  // it stays until the session ends
  entry& mine = store().entry_at(where_of(what.handle));
  record& in = store().record_at(mine.record);
  shard.drop_watcher(in, mine);
  shard.after_change(in, env_.time.now());
  what.handle = 0;
}

result<void> file_engine::watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                                const call& limits) {
  if (is_forked()) return forked_error(store());
  watched what{kind, name, seen};
  look_result first;
  auto changed = look_at(what, 0, limits, first);
  if (!changed) return changed.error();
  if (*changed) return {};
  entry& mine = store().entry_at(where_of(what.handle));
  std::optional<std::stop_callback<wake_on_stop>> on_stop;
  if (limits.stop.stop_possible()) on_stop.emplace(limits.stop, wake_on_stop{&mine});
  wait_set waiting_on;
  for (;;) {
    const std::uint32_t before = mine.wake.fetch_or(1, std::memory_order_acq_rel) | 1;
    look_result out;
    changed = look_at(what, 0, limits, out);
    if (!changed || *changed) break;
    if (limits.stop.stop_requested() || env_.time.now() >= limits.deadline) break;
    waiting_on.clear();
    for (const auto session : out.monitored()) waiting_on.monitor(store().session_at(session));
    waiting_on.not_after(std::min({out.again, limits.deadline, env_.time.now() + back_stop}));
    waiting_on.sleep(env_, mine.wake, before);
  }
  on_stop.reset();
  mine.wake.fetch_and(~1U, std::memory_order_acq_rel);
  stop_watching(what, {});
  if (!changed) return changed.error();
  return {};
}

}  // namespace holdfast::engines::file
