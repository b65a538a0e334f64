// Keys and transactions of Consul: requests as JSON, and how their answers are read. Pure: no I/O.
#pragma once

#include "engines/consul/agent.hpp"

#include <holdfast/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::consul {

// What api.Lock and api.Semaphore of HashiCorp's clients write into the flags of a key, and look for.
inline constexpr std::uint64_t lock_flags = 0x2ddccbc058a50c18;
inline constexpr std::uint64_t semaphore_flags = 0xe0f69a2baa414de0;

struct kv_pair {
  std::string key;
  std::string value{};
  std::string session{};  // that has locked it; empty: none
  std::uint64_t flags = 0;
  std::uint64_t created = 0;   // index of the raft log
  std::uint64_t modified = 0;  // the same
};

// What lies under a prefix, and the index up to which that is known to be all: the deletions before it, too.
struct kv_tree {
  std::vector<kv_pair> pairs;
  std::uint64_t index = 0;
};

// The body of a PUT to /v1/txn: all of it is carried out, or nothing. Consul takes at most most_operations, answers a
// failed one with what failed, and does not count a write that changes nothing as a change.
class transaction {
 public:
  static constexpr std::size_t most_operations = 64;

  void check_absent(std::string_view key) { add("check-not-exists", key); }
  void check_index(std::string_view key, std::uint64_t index) {
    add("check-index", key);
    with_index(index);
    ++results_;
  }
  void check_session(std::string_view key, std::string_view session) {
    add("check-session", key);
    with_session(session);
    ++results_;
  }
  // As it was seen: absent when the index is 0.
  void check_as_seen(std::string_view key, std::uint64_t index) {
    index == 0 ? check_absent(key) : check_index(key, index);
  }
  void lock(std::string_view key, std::string_view session, std::string_view value,
            std::uint64_t flags = 0) {
    add("lock", key);
    with_session(session);
    with_value(value, flags);
  }
  void unlock(std::string_view key, std::string_view session, std::string_view value,
              std::uint64_t flags = 0) {
    add("unlock", key);
    with_session(session);
    with_value(value, flags);
  }
  void set(std::string_view key, std::string_view value, std::uint64_t flags = 0) {
    add("set", key);
    with_value(value, flags);
  }
  void erase(std::string_view key) { add("delete", key); }
  // Nothing happens when it is absent; fails when it has another index.
  void erase_if(std::string_view key, std::uint64_t index) {
    add("delete-cas", key);
    with_index(index);
  }
  // What was there under the prefix after all that stands before; the last operation.
  void get_tree(std::string_view prefix) { add("get-tree", prefix); }

  std::size_t size() const noexcept { return operations_; }
  std::size_t results_before_tree() const noexcept { return results_; }
  std::string body() const { return "[" + out_ + "]"; }

 private:
  void add(std::string_view verb, std::string_view key);
  void insert(std::string_view field);
  void with_index(std::uint64_t index);
  void with_session(std::string_view session);
  void with_value(std::string_view value, std::uint64_t flags);

  std::string out_;
  std::size_t operations_ = 0;
  std::size_t results_ = 0;  // of what answers with an entry
};

// The answer to a transaction.
struct txn_reply {
  struct failure {
    std::size_t operation = 0;
    std::string what;
  };
  std::vector<kv_pair> written;   // what was written or checked, without values
  std::vector<kv_pair> tree;      // of get_tree()
  std::vector<failure> failures;  // none: it was carried out
  bool repeated = false;          // an earlier copy of it may have been carried out, too

  bool done() const noexcept { return failures.empty(); }
  bool failed_at(std::size_t operation) const noexcept;
  // Consul keeps a key for a while that a session had which ended (lock-delay).
  bool is_delayed() const noexcept;
  // It says that this session does not exist.
  bool is_session_invalid(std::string_view id) const noexcept;
  // The index of the last write of this key in it; 0: there was none.
  std::uint64_t index_of(std::string_view key) const noexcept;
};

// nullopt: this is no such answer.
std::optional<txn_reply> read_txn(std::string_view body, std::size_t results_before_tree);
// The answer to a GET of keys: an array of pairs.
std::optional<std::vector<kv_pair>> read_pairs(std::string_view body);
// {"ID": "..."} of a new session.
std::optional<std::string> read_session_id(std::string_view body);

std::string base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);
// For the path of a URL: slashes stay.
std::string escaped_path(std::string_view key);
// With the quotes.
std::string json_text(std::string_view text);

// The coordination key of api.Semaphore: its permits, and the sessions that have one each.
struct semaphore_record {
  std::uint64_t limit = 0;
  std::vector<std::string> holders;
};
std::string semaphore_text(const semaphore_record& what);
std::optional<semaphore_record> read_semaphore(std::string_view value);

}  // namespace holdfast::engines::consul
