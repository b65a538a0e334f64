// The contenders of one lock, as Curator's recipes order them: which of them hold, and what each other one waits for.
// Pure: no I/O, no time.
//
// The rule knows the order of creation only, so that all clients find the same, other programs' too: an exclusive one
// holds when nobody is before it, a reader when no exclusive one is. (The weights and marks of common/ordered_queue
// have no place in it: other programs would not see them.) Each waiter waits for one node: an exclusive one for the
// contender just before it, a reader for the nearest exclusive one before it.
#pragma once

#include "engines/zk/node_names.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace holdfast::engines::zk {

class lock_queue {
 public:
  lock_queue() = default;
  lock_queue(const layout& in, std::span<const std::string_view> children);
  explicit lock_queue(std::vector<contender> all);

  const std::vector<contender>& all() const noexcept { return all_; }
  bool empty() const noexcept { return all_.empty(); }
  // Of the semaphore that lies here; its nodes are others.
  bool has_permits() const noexcept { return has_permits_; }

  const contender* find(std::string_view name) const noexcept;
  const contender* find(const owner_id& owner) const noexcept;
  // What it waits for; null: it holds.
  const contender* blocker_of(const contender& entry) const noexcept;
  bool holds(const contender& entry) const noexcept { return blocker_of(entry) == nullptr; }
  // Is this one the next, and will it hold as soon as the one before it goes? Not for certain if that is a writer or a
  // reader: there may be a reader in its place then, by a downgrade or by barging.
  bool is_next(const contender& entry) const noexcept {
    const auto& first = all_.front();
    return entry.wants == wish::exclusive && &entry == &first + 1 &&
           first.wants == wish::exclusive && !first.may_become_reader;
  }
  // A reader that holds, beside which a newcomer may come in ahead of those that wait; null: there is none, or another
  // program waits, which would not know that it was overtaken.
  const contender* to_barge_in_beside() const noexcept;
  bool takes(wish newcomer) const noexcept;

  // Changes whenever the holders do; 0: there are none.
  std::uint64_t version() const noexcept;

 private:
  std::vector<contender> all_;
  bool has_permits_ = false;
};

// FNV-1a, for versions.
std::uint64_t hash_on(std::uint64_t sum, std::string_view text) noexcept;
inline constexpr std::uint64_t hash_begin = 0xcbf29ce484222325U;

}  // namespace holdfast::engines::zk
