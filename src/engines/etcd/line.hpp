// Everybody under one name, in the order in which they came; who holds follows from that alone, so that all clients
// find the same. The rule (grant_rule.hpp), applied from the first to the last:
//
// - Whoever has entered by a mark (came in over the heads of waiters, upgraded, downgraded, or stamped) holds.
// - Anybody else holds when nobody before it waits and its weight fits. Another capacity than that of the first never
//   fits.
// - An upgrade waits until it is the last but its own old key; it holds only once it has been marked so, by a
//   transaction that checks that nothing has changed since. Its old key stays until it goes: clients that know only the
//   order of creation wait for that one.
//
// A holder stays one until its key goes: those who come later come behind, and whoever comes in over the heads of
// waiters does so in a transaction that would fail if those in front of them had gone meanwhile.
//
// Exclusive waiters are handed the lock: whoever held exclusively, and had to wait for it, marks the next one with its
// token (t=) in the transaction that ends its own key. The mark says what the order says anyway; it is there to be seen
// by one who looks at its own key only. So all who waited behind an exclusive waiter may do that. The mark also tells
// some of those who come next, which spares the heir a look at the line.
//
// Tokens are the revisions of creation. One who comes in over the heads of waiters touches their keys in the same
// transaction; a waiter that was touched takes a new revision as its token when its turn comes (it is stamped).
//
// Pure: no I/O, no time.
#pragma once

#include "engines/etcd/place.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace holdfast::engines::etcd {

heir as_heir(const place& of);

class line {
 public:
  line() = default;
  explicit line(std::vector<place> all);  // in any order

  const std::vector<place>& all() const noexcept { return all_; }
  bool empty() const noexcept { return all_.empty(); }
  std::uint64_t capacity() const noexcept { return capacity_; }  // rw_capacity when empty
  std::uint64_t used() const noexcept { return used_; }

  const place* find(const owner_id& owner) const noexcept;  // the one that counts
  const place* find(std::string_view key) const noexcept;
  const place* created_at(std::int64_t revision) const noexcept;
  const place* just_before(const place& one) const noexcept;
  bool anybody_waits() const noexcept { return first_waiter() != nullptr; }
  const place* first_waiter() const noexcept;                     // upgrades are not meant
  const place* first_after(std::int64_t created) const noexcept;  // of those that count
  // May it look at its own key only? Somebody will hand over to it, and has to wait for that itself.
  bool may_sleep(const place& waiter) const noexcept;
  // To whom `holder`, which holds exclusively, hands over, and who follows: `most_heirs` of them at most.
  static constexpr std::size_t most_heirs = 8;
  std::vector<heir> heirs_of(const place& holder) const;

  // May a newcomer enter now, at the end of the line?
  bool takes(std::uint64_t weight) const noexcept;
  // May it come in before those who wait? If so, the keys without which they, or some of them, would not have to wait
  // any more: the first of them, behind whom the others must stay, and the holders for whom it has no room.
  std::optional<std::vector<const place*>> takes_barging(std::uint64_t weight) const;
  // Is this upgrade the only one left beside its old key?
  bool lets_upgrade(const place& one) const noexcept;

  // Waiters that have not been touched since they came.
  std::vector<const place*> untouched() const;
  // Changes whenever the holders do; 0: there are none.
  std::uint64_t version() const noexcept;

 private:
  void judge();
  std::vector<place> all_;
  std::uint64_t capacity_ = rw_capacity;
  std::uint64_t used_ = 0;
  bool upgrade_waits_ = false;
  bool foreigner_waits_ = false;
};

}  // namespace holdfast::engines::etcd
