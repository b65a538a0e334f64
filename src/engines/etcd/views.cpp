// The operators' view.
#include "engines/etcd/etcd_engine.hpp"
#include "support/text.hpp"

#include <algorithm>
#include <chrono>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;
using standing = queue_entry::standing;

constexpr std::int64_t page = 1000;
constexpr std::size_t most_leases = 64;  // that are asked for their time left

nanoseconds age_of(const queue_entry& entry) {
  using namespace std::chrono;
  if (entry.since_ms == 0) return unknown_time;
  const auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return milliseconds{std::max<std::int64_t>(now - entry.since_ms, 0)};  // clocks differ
}

// What follows the name: in the Go client the lease in hex, which it shows as its session.
std::string foreign_owner(std::string_view key) {
  const auto own = key.substr(key.rfind('/') + 1);
  const bool is_text = support::is_utf8(own) && !support::has_control(own);
  return is_text ? std::string{own} : support::quoted(own);
}

void add_leases(const lock_queue& of, std::vector<std::int64_t>& to) {
  for (const auto& entry : of.all())
    if (entry.stands == standing::holder && entry.lease != 0 &&
        std::ranges::find(to, entry.lease) == to.end() && to.size() < most_leases)
      to.push_back(entry.lease);
}

}  // namespace

// ---- reading

operation<etcd_engine::seen_queue> etcd_engine::look(std::string_view name, invocation how) {
  const auto range = keys_of(how_.root, name);
  const question what{method::range, bytes_of(range_of(range))};
  const auto said = co_await cluster_->ask(what, how);
  const auto in = read_reply<rpc::RangeResponse>(said.got, name, how_.url);
  if (!in) co_return in.error();
  seen_queue out;
  out.queue = queue_in(in->kvs(), range);
  out.revision = in->header().revision();
  co_return out;
}

// How long each lease lasts if it is not kept alive. What cannot be told is left out.
operation<etcd_engine::times_left> etcd_engine::remaining(std::vector<std::int64_t> leases,
                                                          invocation how) {
  times_left out;
  const auto own = session_->current();
  for (const auto id : leases) {
    if (own && own->id == id) {
      out[id] = own->proven + own->ttl - clock_.now();
      continue;
    }
    rpc::LeaseTimeToLiveRequest ask;
    ask.set_id(id);
    const question what{method::time_to_live, bytes_of(ask)};
    const auto said = co_await cluster_->ask(what, how);
    const auto in = read_reply<rpc::LeaseTimeToLiveResponse>(said.got, {}, how_.url);
    if (in && in->ttl() >= 0)
      // It tells whole seconds, rounded down; the lease does not end before that, and may live on for the rest.
      out[id] = std::chrono::seconds{
          std::min(in->ttl() + 1, std::max<std::int64_t>(in->grantedttl(), 1))};
  }
  co_return out;
}

// ---- showing

lock_info etcd_engine::describe(std::string_view name, const lock_queue& all,
                                const times_left& left) const {
  lock_info out;
  out.name = name;
  out.capacity = all.capacity();
  out.version = all.version();
  for (const auto& entry : all.all()) {
    if (entry.stands == standing::hidden || entry.stands == standing::idle) continue;
    holder_info info;
    info.owner = entry.owner;
    info.mode = entry.mode;
    info.weight = entry.weight;
    info.age = age_of(entry);
    info.pid = entry.pid;
    info.host = entry.host;
    info.label = entry.label;
    if (entry.foreign) info.owner_text = foreign_owner(entry.key);
    if (entry.stands == standing::holder) {
      info.token = entry.token;
      if (entry.lease == 0) info.expires_in = no_expiry;
      if (const auto at = left.find(entry.lease); at != left.end()) info.expires_in = at->second;
      out.holders.push_back(std::move(info));
    } else if (entry.stands == standing::upgrade) {
      out.waiters.insert(out.waiters.begin(), std::move(info));
    } else {
      out.waiters.push_back(std::move(info));
    }
  }
  return out;
}

// What we are about to release is gone in our own eyes.
operation<lock_info> etcd_engine::do_inspect(std::string_view name, invocation how) {
  const auto leaving = keys_in(entries_.releasing(name));
  auto seen = co_await look(name, how);
  if (!seen) co_return std::move(seen).error();
  if (!leaving.empty()) {
    auto places = seen->queue.all();
    std::erase_if(places, [&](const queue_entry& entry) {
      return std::ranges::find(leaving, stored{entry.key, entry.created}) != leaving.end();
    });
    seen->queue = lock_queue{std::move(places)};
  }
  std::vector<std::int64_t> leases;
  add_leases(seen->queue, leases);
  auto left = co_await remaining(std::move(leases), how);
  co_return describe(name, seen->queue, *left);
}

// Page by page, all at the revision of the first.
operation<std::vector<lock_info>> etcd_engine::do_list(std::string_view prefix, std::size_t limit,
                                                       invocation how) {
  const auto range = keys_from(std::string{how_.root}.append(prefix));
  auto ask = range_of(range);
  ask.set_limit(page);
  std::map<std::string, std::vector<queue_entry>, std::less<>> found;
  for (bool more = true; more;) {
    const question what{method::range, bytes_of(ask)};
    const auto said = co_await cluster_->ask(what, how);
    const auto in = read_reply<rpc::RangeResponse>(said.got, {}, how_.url);
    if (!in) co_return in.error();
    for (const auto& kv : in->kvs()) {
      const auto name = name_in(how_.root, kv.key());
      if (name && name->starts_with(prefix))
        found[std::string{*name}].push_back(read_queue_entry(kv));
    }
    more = in->more() && !in->kvs().empty();
    if (!more) break;
    ask.set_revision(in->header().revision());
    ask.set_key(in->kvs(in->kvs_size() - 1).key() + '\0');
  }
  std::vector<std::pair<std::string, lock_queue>> lines;
  std::vector<std::int64_t> leases;
  for (auto& [name, places] : found) {
    if (lines.size() == limit) break;
    lines.emplace_back(name, lock_queue{std::move(places)});
    add_leases(lines.back().second, leases);
  }
  auto left = co_await remaining(std::move(leases), how);
  std::vector<lock_info> out;
  for (const auto& [name, all] : lines) out.push_back(describe(name, all, *left));
  co_return out;
}

// They lie in the order of their names. What is no number, or has no name of ours, is not a counter.
operation<std::vector<counter_info>> etcd_engine::do_list_counters(std::string_view prefix,
                                                                   std::size_t limit,
                                                                   invocation how) {
  const auto head = counter_key(how_.root, {});
  auto ask = range_of(keys_from(counter_key(how_.root, prefix)));
  ask.set_limit(page);
  std::vector<counter_info> out;
  std::vector<std::int64_t> leases;  // of the counters, at the same places
  for (bool more = true; more && out.size() < limit;) {
    const question what{method::range, bytes_of(ask)};
    const auto said = co_await cluster_->ask(what, how);
    const auto in = read_reply<rpc::RangeResponse>(said.got, {}, how_.url);
    if (!in) co_return in.error();
    for (const auto& kv : in->kvs()) {
      const auto name = std::string_view{kv.key()}.substr(head.size());
      const auto value = read_counter(kv.value());
      if (!value || !check_name(name) || out.size() == limit) continue;
      out.push_back({std::string{name}, *value, kv.lease() == 0 ? no_expiry : unknown_time});
      leases.push_back(kv.lease());
    }
    more = in->more() && !in->kvs().empty();
    if (!more) break;
    ask.set_revision(in->header().revision());
    ask.set_key(in->kvs(in->kvs_size() - 1).key() + '\0');
  }
  std::vector<std::int64_t> asked;
  for (const auto lease : leases)
    if (lease != 0 && asked.size() < most_leases) asked.push_back(lease);
  const auto left = co_await remaining(std::move(asked), how);
  for (std::size_t i = 0; left && i < out.size(); ++i)
    if (const auto at = left->find(leases[i]); at != left->end()) out[i].forgotten_in = at->second;
  co_return out;
}

// ---- taking away

// Waiters are served by that, as by any release. What is created from now on has a larger token.
operation<std::size_t> etcd_engine::do_revoke(std::string_view name, invocation how) {
  auto seen = co_await look(name, how);
  if (!seen) co_return std::move(seen).error();
  std::vector<stored> keys;
  std::size_t holders = 0;
  std::int64_t last = 0;
  for (const auto& entry : seen->queue.all()) {
    if (entry.stands == standing::holder) ++holders;
    if (entry.stands != standing::holder && entry.stands != standing::hidden) continue;
    keys.push_back({entry.key, entry.created});
    last = entry.created;
  }
  while (!keys.empty()) {
    const auto count = std::min(most_at_once, keys.size());
    const auto first = keys.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<stored> some{first, keys.end()};
    keys.erase(first, keys.end());
    if (auto away = co_await remove(name, std::move(some), how); !away)
      co_return std::move(away).error();
  }
  if (holders > 0)
    if (const auto left = co_await look(name, how))
      static_cast<void>(co_await call_next(name, left->queue, last, anybody, how));
  co_return holders;
}

}  // namespace holdfast::engines::etcd
