#include "engines/consul/watches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

constexpr auto query_lasts = 60s;
// Consul adds up to a sixteenth.
constexpr nanoseconds query_patience = query_lasts + query_lasts / 16 + 10s;
constexpr nanoseconds first_rest = 20ms, longest_rest = 1s;
// Long answers come rarely: they cost the servers and us some ten nanoseconds a byte.
constexpr nanoseconds rest_per_byte = 100ns;
constexpr std::size_t long_answer = 20'000;

bool is_folder(std::string_view key) { return key.ends_with('/'); }

// FNV-1a over what lies there.
std::uint64_t digest_of(const std::vector<kv_pair>& pairs) {
  std::uint64_t sum = 0xcbf29ce484222325U;
  const auto add = [&sum](std::uint64_t part) { sum = (sum ^ part) * 0x100000001b3U; };
  for (const auto& pair : pairs) {
    add(pair.modified);
    add(pair.created);
    add(pair.session.empty() ? 0 : 1);
    add(std::hash<std::string>{}(pair.key));
  }
  return sum;
}

std::uint64_t newest_of(const std::vector<kv_pair>& pairs) {
  std::uint64_t out = 0;
  for (const auto& pair : pairs) out = std::max(out, pair.modified);
  return out;
}

}  // namespace

// Each watcher is compared by itself at first: what the others have still to be told is none of its business.
void watches::watch(const std::string& key, std::uint64_t watcher, const seen& last, told done) {
  {
    const std::lock_guard lock{guard_};
    if (ending_) return;
    auto& at = all_[key];
    const bool is_first = at.watchers.empty();
    at.watchers.insert_or_assign(
        watcher, watcher_entry{++last_generation_, last, false, false, std::move(done)});
    const bool is_asked = at.is_waiting || at.is_planned;
    if (is_asked && at.index <= last.index) return;
    // The query under way may know more than this watcher: it is asked again, from the watcher's own index.
    if (is_asked) stop_query(at);
    at.index = is_first && !is_asked ? last.index : std::min(at.index, last.index);
  }
  agent_.run_soon([this, key] { ask(key); });
}

// `only`: not if it has begun to watch anew since then.
void watches::forget(const std::string& key, std::uint64_t watcher,
                     std::optional<std::uint64_t> only) {
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(key);
    if (at == all_.end()) return;
    auto& watchers = at->second.watchers;
    const auto entry = watchers.find(watcher);
    if (entry == watchers.end() || (only && entry->second.generation != *only)) return;
    watchers.erase(entry);
    if (!watchers.empty()) return;
    stop_query(at->second);
    if (at->second.has_query) --queries_;
    all_.erase(at);
    // Not at once: locks that are given back one after the other would hand a query on to one another.
    if (std::exchange(is_sharing_, true)) return;
  }
  agent_.at(std::chrono::steady_clock::now() + longest_rest, [this] { share_queries(); });
}

void watches::end() noexcept {
  const std::lock_guard lock{guard_};
  ending_ = true;
  for (auto& [key, at] : all_) stop_query(at);
  all_.clear();
}

// REQUIRES: guard_ is held.
void watches::stop_query(place& of) {
  if (of.is_waiting) agent_.cancel_listening(of.query);
  of.is_waiting = of.is_planned = false;
  of.generation = ++last_generation_;
}

// Where a query has become free, the next place gets one of its own; the last to go are those that share one.
void watches::share_queries() {
  std::vector<std::string> next;
  {
    const std::lock_guard lock{guard_};
    is_sharing_ = false;
    if (ending_) return;
    const auto& root = agent_.how().root;
    bool is_shared = false;
    for (const auto& [key, at] : all_) {
      if (at.has_query || key == root) continue;
      is_shared = queries_ + next.size() >= most_queries;
      if (is_shared) break;
      next.push_back(key);
    }
    // Nobody needs the query of everything any more.
    const auto everything = all_.find(root);
    if (!is_shared && everything != all_.end() && everything->second.watchers.empty()) {
      stop_query(everything->second);
      all_.erase(everything);
    }
  }
  for (const auto& key : next) ask(key);
}

// On the agent's thread.
void watches::ask(const std::string& key) {
  const auto& root = agent_.how().root;
  bool is_shared = false;
  {
    const std::lock_guard lock{guard_};
    const auto found = all_.find(key);
    if (ending_ || found == all_.end() || found->second.is_waiting || found->second.is_planned)
      return;
    auto& at = found->second;
    if (!at.has_query && key != root) {
      is_shared = queries_ >= most_queries;
      if (!is_shared) {
        at.has_query = true;
        ++queries_;
      }
    }
    if (is_shared) {
      share(at);
    } else {
      at.is_waiting = true;
      at.member = agent_.current();
      const auto generation = at.generation = ++last_generation_;
      const auto path = fmt::format("/v1/kv/{}?{}index={}&wait={}s", escaped_path(key),
                                    is_folder(key) ? "recurse&" : "", at.index,
                                    std::chrono::seconds{query_lasts}.count());
      at.query =
          agent_.listen(path, query_patience, [this, key, generation](result<http_reply> got) {
            on_answer(key, generation, std::move(got));
          });
    }
  }
  if (is_shared) ask(root);
}

// The query of everything shall answer from what the watcher of this place knows. REQUIRES: guard_ is held.
void watches::share(place& of) {
  const auto& root = agent_.how().root;
  const auto [at, is_new] = all_.try_emplace(root);
  auto& all = at->second;
  const auto known = oldest_to_compare(of);
  if (is_new) all.index = known.value_or(0);
  if (is_new || !known || all.index <= *known) return;
  all.index = *known;
  // Not at once: newcomers that come all the time would keep it from ever answering.
  if (!all.is_waiting) return;
  stop_query(all);
  ask_later(root, all);
}

void watches::follow_agent() {
  std::vector<std::string> moved;
  {
    const std::lock_guard lock{guard_};
    const auto now = agent_.current();
    for (auto& [key, at] : all_) {
      if (!at.is_waiting || at.member == now) continue;
      stop_query(at);
      moved.push_back(key);
    }
  }
  for (const auto& key : moved) ask(key);
}

// REQUIRES: guard_ is held.
void watches::ask_later(const std::string& key, place& of) {
  const auto rest =
      std::max(std::min(longest_rest, first_rest * (1U << std::min(of.fruitless, 6U))),
               rest_per_byte * static_cast<std::int64_t>(of.last_length));
  of.is_planned = true;
  const auto generation = of.generation = ++last_generation_;
  agent_.at(std::chrono::steady_clock::now() + rest, [this, key, generation] {
    {
      const std::lock_guard lock{guard_};
      const auto at = all_.find(key);
      if (at == all_.end() || at->second.generation != generation) return;
      at->second.is_planned = false;
    }
    ask(key);
  });
}

void watches::on_answer(const std::string& key, std::uint64_t generation, result<http_reply> got) {
  constexpr int found = 200, absent = 404;
  std::optional<std::vector<kv_pair>> pairs;
  if (got && got->status == found) pairs = read_pairs(got->body);
  if (got && got->status == absent) pairs.emplace();
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(key);
    if (ending_ || at == all_.end() || at->second.generation != generation) return;
    at->second.is_waiting = false;
    if (!pairs) {
      at->second.index = 0;
      ++at->second.fruitless;
      return ask_later(key, at->second);
    }
  }
  note(key, *got, std::move(*pairs));
}

// What the watchers know that have not been compared with an answer yet. REQUIRES: guard_ is held.
std::optional<std::uint64_t> watches::oldest_to_compare(const place& of) {
  std::optional<std::uint64_t> out;
  for (const auto& [number, one] : of.watchers)
    if (!one.is_compared) out = std::min(out.value_or(one.last.index), one.last.index);
  return out;
}

// A deletion leaves no write behind. It raises the index of an answer about this very place; and where nothing was
// written there are fewer keys than before.
bool watches::is_news_to(const seen& last, const std::vector<kv_pair>& pairs, std::uint64_t index) {
  return last.index == 0 || pairs.empty() || newest_of(pairs) > last.index || index > last.index ||
         !last.keys || pairs.size() < *last.keys;
}

// REQUIRES: guard_ is held. Is there anything to tell? `index`: of an answer about this very place; 0: there is none.
// `as_of`: what the answer is not older than; 0: not known.
bool watches::note_change(place& at, const std::vector<kv_pair>& pairs, std::uint64_t index,
                          std::uint64_t as_of) {
  const auto before = std::exchange(at.digest, digest_of(pairs));
  const bool was_known = std::exchange(at.is_known, true);
  const bool is_changed = was_known && before != at.digest;
  bool is_news = at.watchers.empty() && (!was_known || is_changed);
  for (auto& [number, one] : at.watchers) {
    const bool is_older = as_of != 0 && as_of < one.last.index;
    if (!one.is_compared && is_older) continue;  // than what it has seen: it says nothing
    const bool was_compared = std::exchange(one.is_compared, true);
    one.is_news = one.is_news || (was_compared ? is_changed : is_news_to(one.last, pairs, index));
    is_news = is_news || one.is_news;
  }
  return is_news;
}

void watches::note(const std::string& key, const http_reply& got, std::vector<kv_pair> pairs) {
  const bool is_root = key == agent_.how().root;
  bool is_news = false, is_good = false, is_planned = false;
  std::uint64_t as_of = 0;
  {
    const std::lock_guard lock{guard_};
    const auto found = all_.find(key);
    if (ending_ || found == all_.end()) return;
    auto& at = found->second;
    // An index that falls, or that cannot be one: begin anew.
    is_good = got.index != 0 && got.index >= at.index;
    if (is_good && at.index != 0) as_of = got.index;
    is_news = note_change(at, pairs, is_root ? 0 : got.index, as_of);
    at.index = is_good ? got.index : 0;
    at.fruitless = is_news && is_good ? 0 : at.fruitless + 1;
    at.last_length = got.body.size();
    is_planned = !is_news || !is_good || is_root || got.body.size() > long_answer;
    if (is_planned) ask_later(key, at);
  }
  const auto index = is_good ? got.index : 0;
  if (is_root) return note_all(std::move(pairs), index, as_of);
  if (is_news) tell(key, pairs, index);
  if (!is_planned) ask(key);
}

// An answer for everything: each place that has no query of its own looks for its part in it.
void watches::note_all(std::vector<kv_pair> pairs, std::uint64_t index, std::uint64_t as_of) {
  std::ranges::sort(pairs, {}, &kv_pair::key);
  std::vector<std::pair<std::string, std::vector<kv_pair>>> news;
  {
    const std::lock_guard lock{guard_};
    for (auto& [key, at] : all_) {
      if (at.has_query || key == agent_.how().root) continue;
      const auto first = std::ranges::lower_bound(pairs, key, {}, &kv_pair::key);
      const auto last = std::find_if(first, pairs.end(), [&place = key](const kv_pair& pair) {
        return is_folder(place) ? !pair.key.starts_with(place) : pair.key != place;
      });
      std::vector<kv_pair> own{first, last};
      if (note_change(at, own, 0, as_of)) news.emplace_back(key, std::move(own));
    }
  }
  for (const auto& [key, now] : news) tell(key, now, index);
}

void watches::tell(const std::string& key, const std::vector<kv_pair>& now, std::uint64_t index) {
  std::map<std::uint64_t, watcher_entry> some;
  {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(key);
    if (at == all_.end()) return;
    for (auto& [number, one] : at->second.watchers)
      if (std::exchange(one.is_news, false)) some.emplace(number, one);
  }
  // One that is told may at once watch again, from another thread.
  for (const auto& [watcher, entry] : some)
    if (!entry.done(now, index)) forget(key, watcher, entry.generation);
}

}  // namespace holdfast::engines::consul
