// The operators' view.
#include "engines/consul/consul_engine.hpp"

#include "support/text.hpp"

#include <holdfast/types.hpp>

#include <algorithm>
#include <chrono>
#include <map>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

nanoseconds age_since(std::int64_t since_ms) {
  using namespace std::chrono;
  if (since_ms == 0) return unknown_time;
  const auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return milliseconds{std::max<std::int64_t>(now - since_ms, 0)};  // clocks differ
}

holder_info info_of(const queue_entry& entry) {
  holder_info out;
  out.owner = entry.owner;
  out.mode = entry.mode;
  out.weight = entry.weight;
  out.age = age_since(entry.since_ms);
  out.pid = entry.pid;
  out.host = entry.host;
  out.label = entry.label;
  if (entry.foreign) out.owner_text = "session " + support::quoted(entry.session);
  if (entry.entered) out.token = entry.token;
  return out;
}

bool is_in_use(const lock_info& what) { return !what.holders.empty() || !what.waiters.empty(); }

}  // namespace

lock_info consul_engine::describe(std::string_view name, const lock_state& seen) const {
  const auto own_session = sessions_->current();
  lock_info out;
  out.name = name;
  out.capacity = seen.queue().capacity();
  out.version = seen.version();
  for (const auto& entry : seen.queue().all()) {
    auto info = info_of(entry);
    if (entry.entered) {
      // Of others: after they were last heard of; how long ago that is, no server tells.
      if (own_session && entry.session == own_session->id) {
        info.expires_in = own_session->proven + how_.session - clock_.now();
      } else if (entry.session_lasts > 0ms) {
        info.expires_in = entry.session_lasts;
      }
      out.holders.push_back(std::move(info));
    } else if (entry.stands == queue_entry::standing::upgrade) {
      out.waiters.insert(out.waiters.begin(), std::move(info));
    } else if (entry.stands != queue_entry::standing::idle) {
      out.waiters.push_back(std::move(info));
    }
  }
  return out;
}

operation<lock_info> consul_engine::do_inspect(std::string_view name, invocation how) {
  co_await releases_.after_releases(*agent_, name, how);
  auto seen = co_await look(name, how);
  if (!seen) co_return std::move(seen).error();
  co_return describe(name, *seen);
}

operation<std::vector<lock_info>> consul_engine::do_list(std::string_view prefix, std::size_t limit,
                                                         invocation how) {
  const auto asked = listed_prefix(prefix);
  if (!asked) co_return std::vector<lock_info>{};
  auto tree = co_await read_tree(how_.root + *asked, {}, how);
  if (!tree) co_return std::move(tree).error();
  std::map<std::string, std::vector<kv_pair>, std::less<>> found;
  for (auto& pair : tree->pairs) {
    const auto parts = split_key(how_.root, pair.key);
    if (!parts || !parts->name.starts_with(prefix) || !check_name(parts->name)) continue;
    found[parts->name].push_back(std::move(pair));
  }
  std::vector<lock_info> out;
  for (const auto& [name, of] : found) {
    if (out.size() == limit) break;
    auto line = describe(name, lock_state{of, keys_of(how_.root, name)});
    if (is_in_use(line)) out.push_back(std::move(line));
  }
  co_return out;
}

// Waiters are served by that, as by any release. Whatever is granted from now on has a larger token: an index of the
// raft log never comes again.
operation<std::size_t> consul_engine::do_revoke(std::string_view name, invocation how) {
  const auto keys = keys_of(how_.root, name);
  std::size_t holders = 0;
  for (int round = 0; round < rounds; ++round) {
    auto seen = co_await look(name, how);
    if (!seen) co_return std::move(seen).error();
    transaction out;
    std::size_t some = 0;
    bool is_all = true;
    for (const auto& entry : seen->queue().all()) {
      if (!entry.entered) continue;
      constexpr std::size_t room = 8;
      if (out.size() + entry.permit_sessions.size() + room > transaction::most_operations) {
        is_all = false;
        break;
      }
      ++some;
      if (entry.foreign) continue;  // it goes with .lock
      out.erase_if(entry.key, entry.modified);
      for (std::size_t i = 1; i < entry.permit_sessions.size(); ++i)
        out.erase(permit_key(entry.key, i));
    }
    if (some == 0) co_return holders;
    // With the last of them.
    if (is_all && seen->lock_index() != 0) {
      out.check_index(keys.lock, seen->lock_index());
      out.erase(keys.lock);
    }
    out.check_as_seen(keys.readers, seen->readers_index());
    if (seen->readers_index() != 0)
      is_all ? out.erase(keys.readers) : out.set(keys.readers, stamp());
    auto got = co_await transact(std::move(out), name, {}, how);
    if (!got) co_return std::move(got).error();
    if (!got->done()) continue;
    holders += some;
    if (is_all) co_return holders;
    round = 0;
  }
  co_return kept_changing(name);
}

}  // namespace holdfast::engines::consul
