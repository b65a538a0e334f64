// What this client has made, or may have made, in the store: for each owner that asked, its place in a queue or its
// permits.
#pragma once

#include "engines/common/own_entries.hpp"
#include "engines/zk/watches.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::engines::zk {

struct own_node : engines::own_entry {
  // Under the table's guard.
  std::string path;                  // of its node in the queue; empty: none is known
  std::vector<std::string> permits;  // of its nodes among the permits
  std::uint64_t session = 0;         // that they belong to
  std::int64_t created = 0;          // czxid of its node in the queue
  bool in_doubt = false;             // a request that creates one of them was not answered
  bool is_erased = false;            // a request that deletes them may have been carried out
  std::string moving_to;    // by a downgrade that is under way, or in doubt; empty: none is
  bool is_watched = false;  // what it holds by, or will when its turn comes
  // What it waits for; empty: to be looked at anew. When `is_next`, the lock is its own as soon as that node is gone.
  std::string blocker;
  watches::on blocker_is = watches::on::node;
  std::int64_t blocker_seen = 0;  // of children: the zxid of their last change that was seen
  bool is_next = false;

  bool has_nodes() const noexcept { return !path.empty() || !permits.empty(); }
  // All that may be in the store.
  std::vector<std::string> all_nodes() const {
    auto out = permits;
    for (const auto& one : {path, moving_to})
      if (!one.empty()) out.push_back(one);
    return out;
  }
  // What it holds by: its permits, or its place in the queue.
  std::vector<std::string> holds_by() const {
    if (!permits.empty()) return permits;
    return path.empty() ? std::vector<std::string>{} : std::vector{path};
  }
};

using own_nodes = engines::own_entries<own_node>;

}  // namespace holdfast::engines::zk
