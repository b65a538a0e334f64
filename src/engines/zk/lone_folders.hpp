// Locks that only this client uses, as far as it knows: then a new node of ours holds the lock, and the others need not
// be asked for.
//
// The server gives a sequential node the number of nodes that were ever made below the lock's node (its folder). When
// we were the only contender, and our next node has the next number, no client has made one meanwhile; so we are the
// only one again. That is true of one folder: one that was deleted and made anew counts from 0. So a folder counts as
// known only while it is watched, over the same connection, and no event is left that we have not heard: the server
// tells of its deletion before it answers anything that comes after.
//
// Pure bookkeeping. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace holdfast::engines::zk {

class lone_folders {
 public:
  struct place {
    std::int64_t folder = 0;       // its czxid
    std::uint64_t connection = 0;  // over which it is watched
  };

  // We were seen to be the only contender. True: and not for the first time, so it is worth a watch.
  bool note_alone(const std::string& folder, const place& where, std::int32_t sequence,
                  std::uint64_t owner) {
    const std::lock_guard lock{guard_};
    if (all_.size() >= most) all_.clear();
    const auto [at, is_new] = all_.insert_or_assign(folder, state{where, sequence, owner});
    return !is_new;
  }
  // Is a node of ours likely to be the only one?
  bool expects_none(const std::string& folder) const {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(folder);
    return at != all_.end() && at->second.owner == 0;
  }
  // Our new node has this number: is it the only one? `where` was read after the answer came.
  bool take(const std::string& folder, const place& where, std::int32_t sequence,
            std::uint64_t owner) {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(folder);
    if (at == all_.end()) return false;
    auto& known = at->second;
    const auto next = static_cast<std::int32_t>(static_cast<std::uint32_t>(known.sequence) + 1);
    if (known.owner != 0 || known.where.folder != where.folder || where.folder == 0 ||
        known.where.connection != where.connection || next != sequence)
      return false;
    known.sequence = sequence;
    known.owner = owner;
    return true;
  }
  // Its node is about to be deleted, before anything that is asked from now on.
  void give_back(const std::string& folder, std::uint64_t owner) {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(folder);
    if (at != all_.end() && at->second.owner == owner) at->second.owner = 0;
  }
  void forget(const std::string& folder) {
    const std::lock_guard lock{guard_};
    all_.erase(folder);
  }

 private:
  static constexpr std::size_t most = 10'000;
  struct state {
    place where;
    std::int32_t sequence;  // of our last node
    std::uint64_t owner;    // of ours that has it; 0: it was given back
  };

  mutable std::mutex guard_;
  std::unordered_map<std::string, state> all_;
};

}  // namespace holdfast::engines::zk
