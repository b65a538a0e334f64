// What this client watches in Consul: a key, or all keys below a folder, by a blocking query each. Consul allows a
// client address 200 connections; so when many places are watched, all beyond the first ones share one query of
// everything under the root.
//
// The rules of blocking queries: an answer is no proof of a change, so contents are compared; an index that falls, or
// that is absent, begins anew; what answers at once all the time, or fails, is asked ever less often (a second at
// most).
//
// Thread-safe. Watchers are told on the agent's thread, without locks.
#pragma once

#include "engines/consul/agent.hpp"
#include "engines/consul/kv.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::engines::consul {

class watches {
 public:
  // What a watcher has seen there: the last index, and how many keys. Without their number the first answer is told
  // whatever it says: what was deleted leaves no write behind.
  struct seen {
    std::uint64_t index = 0;
    std::optional<std::size_t> keys{};
  };
  // What is there now; false: it is not to be told any more. Told when that differs from what was there before; the
  // first time, from what the watcher has seen. `index`: of the answer that says so; 0: not known.
  using told = std::function<bool(const std::vector<kv_pair>& now, std::uint64_t index)>;
  // Clients of one host share the 200 connections, and heartbeats must get theirs.
  static constexpr std::size_t most_queries = 8;

  explicit watches(agent& with) : agent_(with) {}
  watches(const watches&) = delete;
  watches& operator=(const watches&) = delete;

  // `key` ends with a slash for a folder. `watcher` is the watcher's own number: a second watch of the same key by it
  // takes the place of the first.
  void watch(const std::string& key, std::uint64_t watcher, const seen& last, told done);
  void forget(const std::string& key, std::uint64_t watcher) { forget(key, watcher, std::nullopt); }
  // Another agent answers now: what is asked of the one before would not be heard while that hangs.
  void follow_agent();
  // No more queries.
  void end() noexcept;

 private:
  struct watcher_entry {
    std::uint64_t generation = 0;
    seen last{};  // until an answer was compared with it; from then on the place's digest counts
    bool is_compared = false;
    bool is_news = false;  // to be told
    told done;
  };
  struct place {
    bool has_query = false;
    bool is_planned = false;  // the next query waits for its time
    bool is_waiting = false;  // a query is under way
    agent::query_id query = 0;
    std::size_t member = 0;  // that it was sent to
    std::uint64_t generation = 0;
    std::uint64_t index = 0;      // of the next query
    std::uint64_t digest = 0;     // of what was there
    bool is_known = false;        // digest says something
    unsigned fruitless = 0;       // answers or failures in a row that told nothing
    std::size_t last_length = 0;  // of an answer, in bytes
    std::map<std::uint64_t, watcher_entry> watchers;
  };
  using places = std::map<std::string, place>;

  void ask(const std::string& key);
  void ask_later(const std::string& key, place& of);
  void on_answer(const std::string& key, std::uint64_t generation, result<http_reply> got);
  void note(const std::string& key, const http_reply& got, std::vector<kv_pair> pairs);
  void note_all(std::vector<kv_pair> pairs, std::uint64_t index, std::uint64_t as_of);
  void share(place& of);
  static std::optional<std::uint64_t> oldest_to_compare(const place& of);
  static bool is_news_to(const seen& last, const std::vector<kv_pair>& pairs, std::uint64_t index);
  static bool note_change(place& at, const std::vector<kv_pair>& pairs, std::uint64_t index,
                          std::uint64_t as_of);
  void tell(const std::string& key, const std::vector<kv_pair>& now, std::uint64_t index);
  void stop_query(place& of);
  void forget(const std::string& key, std::uint64_t watcher, std::optional<std::uint64_t> only);
  void share_queries();

  agent& agent_;
  std::mutex guard_;
  bool ending_ = false;
  bool is_sharing_ = false;  // share_queries() is planned
  places all_;
  std::size_t queries_ = 0;  // of places that have one of their own
  std::uint64_t last_generation_ = 0;
};

}  // namespace holdfast::engines::consul
