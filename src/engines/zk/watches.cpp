#include "engines/zk/watches.hpp"

#include <utility>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds set_within = 10s;
constexpr nanoseconds look_at_unreadable_every = 1s;
constexpr std::size_t most_bytes_at_once = 64 * 1024;  // bytes of paths in one request

result<std::int64_t> version_in(watches::on kind, const jute::reply& said) {
  if (kind == watches::on::children) {
    const auto children = jute::read_children(said.rest);
    if (!children) return children.error();
    return children->stat.pzxid;
  }
  if (kind == watches::on::existence) return std::int64_t{0};
  const auto node = jute::read_node(said.rest);
  if (!node) return node.error();
  return node->stat.czxid;
}

}  // namespace

std::int64_t watches::watched(const std::string& node) const {
  const std::lock_guard lock{guard_};
  const auto at = all_.find(place{on::node, node});
  return at != all_.end() && at->second.is_set ? at->second.version : 0;
}

void watches::watch(on kind, const std::string& path, std::uint64_t key, told done,
                    std::int64_t seen) {
  place where{kind, path};
  {
    const std::lock_guard lock{guard_};
    auto [at, is_new] = all_.try_emplace(where);
    auto& what = at->second;
    const bool has_changed = what.is_set && seen != 0 && what.version != seen;
    if (has_changed) {
      ensemble_.driver().post([done = std::move(done)] { done(news::changed); });
      return;
    }
    what.watchers.insert_or_assign(key, watcher{std::move(done), seen});
    if (!is_new) return;  // it is set, or the question that sets it is on its way
    const auto* const same = same_to_the_server(where);
    what.is_going = same != nullptr && same->is_going;
    if (what.is_going) return;  // set before it is gone, it would go with it
  }
  set(where);
}

void watches::forget(on kind, const std::string& path, std::uint64_t key) {
  batch unused;
  std::vector<place> going;
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(place{kind, path});
    if (at != all_.end()) at->second.watchers.erase(key);  // the watch itself stays until it tells
    if (all_.size() >= sweep_at_) unused = remove_unused(going);
  }
  if (unused.size() > 0)
    ensemble_.ask_in_background(
        std::move(unused), set_within,
        [this, gone = std::move(going)](const result<answers>&) { on_removed(gone); });
}

// The server does not tell apart a watch for a node and one for its coming. REQUIRES: guard_ is held.
watches::item* watches::same_to_the_server(const place& where) {
  if (where.first == on::children) return nullptr;
  const auto at =
      all_.find(place{where.first == on::node ? on::existence : on::node, where.second});
  return at == all_.end() ? nullptr : &at->second;
}

// Watches that may never tell: of what did not come, and no client waits for any more. REQUIRES: guard_ is held.
batch watches::remove_unused(std::vector<place>& going) {
  batch out;
  for (auto& [where, what] : all_) {
    const auto* const same = same_to_the_server(where);
    const bool is_needed = !what.watchers.empty() || (same != nullptr && !same->watchers.empty());
    if (is_needed || !what.is_set) continue;
    what.is_going = true;
    what.is_set = false;
    going.push_back(where);
    out.remove_watch(where.second, where.first == on::children);
  }
  sweep_at_ = most_unused + 2 * all_.size();  // until they are gone
  return out;
}

// Those for whom a watcher has come meanwhile are set now.
void watches::on_removed(const std::vector<place>& gone) {
  std::vector<place> wanted;
  {
    const std::lock_guard lock{guard_};
    for (const auto& [kind, path] : gone)
      for (const auto one : {on::node, on::existence, on::children}) {
        const auto at = all_.find(place{one, path});
        if ((one == on::children) != (kind == on::children) || at == all_.end() ||
            !std::exchange(at->second.is_going, false))
          continue;
        if (at->second.watchers.empty()) {
          all_.erase(at);
        } else {
          wanted.push_back(at->first);
        }
      }
    sweep_at_ = std::max(most_unused, 2 * all_.size());
  }
  for (const auto& where : wanted) set(where);
}

void watches::set(const place& where) {
  batch ask;
  switch (where.first) {
    case on::node:
      ask.get(where.second, true);
      break;
    case on::existence:
      ask.exists(where.second, true);
      break;
    case on::children:
      ask.children(where.second, true);
      break;
  }
  ensemble_.ask_in_background(
      std::move(ask), set_within,
      [this, where](const result<answers>& said) { on_answer(where, said); });
}

void watches::on_answer(const place& where, const result<answers>& said) {
  const bool is_missing = said && said->err(0) == jute::code::no_node;
  if (said && !said->ok(0) && !is_missing) {
    // Another user's: newer servers tell nothing about what may not be read (CVE-2024-23944), so it is looked at. Or
    // the server has too much to do.
    ensemble_.driver().at(std::chrono::steady_clock::now() + look_at_unreadable_every,
                          [this, where] { tell(where, news::unsure); });
    return;
  }
  if (!said) return tell(where, news::unsure);
  if (is_missing && where.first != on::existence) return tell(where, news::gone);
  const auto version = version_in(where.first, (*said)[0]);
  if (!version) return tell(where, news::unsure);
  std::vector<told> late;
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(where);
    if (at == all_.end()) return;
    auto& what = at->second;
    what.is_set = true;
    what.version = *version;
    std::erase_if(what.watchers, [&](auto& one) {
      if (one.second.seen == 0 || one.second.seen == what.version) return false;
      late.push_back(std::move(one.second.done));
      return true;
    });
  }
  for (const auto& done : late) done(news::changed);
}

void watches::tell(const place& where, news what) {
  item gone;
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(where);
    if (at == all_.end()) return;
    gone = std::move(at->second);
    all_.erase(at);
  }
  for (const auto& [key, one] : gone.watchers) one.done(what);
}

void watches::on_event(const jute::event& what) {
  const std::string path{what.path};
  const auto how = what.what == jute::event_type::deleted ? news::gone : news::changed;
  if (what.what != jute::event_type::children_changed) {
    tell({on::node, path}, how);
    tell({on::existence, path}, how);
  }
  if (what.what == jute::event_type::children_changed || how == news::gone)
    tell({on::children, path}, how);
}

// What changed meanwhile is told at once, by an event; the rest is watched by the new server. But of children it tells
// only changes after `since`, and an event that was read and never told is not among them: so they are looked at. (A
// node that is gone, or has come, is told whenever that was. A plain one may have come again.)
void watches::set_again(std::int64_t since) {
  std::vector<jute::watch_list> lists(1);
  std::vector<std::vector<place>> places(1);  // the same
  std::vector<place> unsure;
  const bool is_plain = ensemble_.how().nodes->is_plain;
  {
    const std::lock_guard lock{guard_};
    std::size_t bytes = 0;
    for (auto& [where, what] : all_) {
      // If not, its question fails, or is answered over the new connection.
      if (!std::exchange(what.is_set, false)) continue;
      if (where.first == on::children || (where.first == on::node && is_plain)) {
        unsure.push_back(where);
        continue;
      }
      if (bytes > most_bytes_at_once) {
        lists.emplace_back();
        places.emplace_back();
        bytes = 0;
      }
      places.back().push_back(where);
      bytes += where.second.size() + 4;
      auto& list = lists.back();
      (where.first == on::node ? list.data : list.existence).push_back(where.second);
    }
  }
  for (const auto& where : unsure) tell(where, news::unsure);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (places[i].empty()) continue;
    lists[i].since = since;
    batch ask;
    ask.set_watches(lists[i]);
    // A connection that ends before the answer leads here again; the next one says so.
    ensemble_.ask_in_background(std::move(ask), set_within,
                                [this, here = std::move(places[i])](const result<answers>& said) {
                                  if (!said || !said->ok(0)) return tell_all();
                                  const std::lock_guard lock{guard_};
                                  for (const auto& where : here)
                                    if (const auto at = all_.find(where); at != all_.end())
                                      at->second.is_set = true;
                                });
  }
}

void watches::tell_all() {
  std::map<place, item> all;
  {
    const std::lock_guard lock{guard_};
    all.swap(all_);
  }
  for (const auto& [where, what] : all)
    for (const auto& [key, one] : what.watchers) one.done(news::unsure);
}

}  // namespace holdfast::engines::zk
