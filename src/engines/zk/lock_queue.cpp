#include "engines/zk/lock_queue.hpp"

#include <algorithm>

namespace holdfast::engines::zk {

lock_queue::lock_queue(const layout& in, std::span<const std::string_view> children) {
  std::vector<contender> found;
  for (const auto child : children) {
    if (auto one = read_contender(in, child)) found.push_back(std::move(*one));
    if (in.has_permits && child == permits_segment) has_permits_ = true;
  }
  const bool permits = has_permits_;
  *this = lock_queue{std::move(found)};
  has_permits_ = permits;
}

// Sequences wrap, so they are no order of their own; but all that are there at a time lie within half of their range.
// Of a writer and a reader with the same one (a downgrade, or Java's reader that is the writer, too) the writer counts.
lock_queue::lock_queue(std::vector<contender> all) : all_(std::move(all)) {
  std::ranges::stable_sort(all_, [](const contender& a, const contender& b) {
    return a.sequence == b.sequence ? a.wants < b.wants : a.is_before(b);
  });
}

const contender* lock_queue::find(std::string_view name) const noexcept {
  const auto at = std::ranges::find(all_, name, &contender::name);
  return at == all_.end() ? nullptr : &*at;
}

const contender* lock_queue::find(const owner_id& owner) const noexcept {
  const auto at = std::ranges::find(all_, std::optional{owner}, &contender::owner);
  return at == all_.end() ? nullptr : &*at;
}

const contender* lock_queue::blocker_of(const contender& entry) const noexcept {
  for (const auto* before = &entry; before != all_.data();) {
    --before;
    if (entry.wants == wish::exclusive || before->wants == wish::exclusive) return before;
  }
  return nullptr;
}

bool lock_queue::takes(wish newcomer) const noexcept {
  if (newcomer == wish::exclusive) return all_.empty();
  return std::ranges::none_of(all_, [](const contender& c) { return c.wants == wish::exclusive; });
}

const contender* lock_queue::to_barge_in_beside() const noexcept {
  const auto is_foreign_waiter = [this](const contender& c) { return !c.owner && !holds(c); };
  if (all_.empty() || all_.front().wants != wish::shared ||
      std::ranges::any_of(all_, is_foreign_waiter))
    return nullptr;
  return all_.data();
}

std::uint64_t hash_on(std::uint64_t sum, std::string_view text) noexcept {
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return sum;
}

std::uint64_t lock_queue::version() const noexcept {
  auto sum = hash_begin;
  bool any = false;
  for (const auto& entry : all_) {
    if (!holds(entry)) break;
    any = true;
    sum = hash_on(sum, entry.name);
  }
  return any ? std::max<std::uint64_t>(sum, 1) : 0;
}

}  // namespace holdfast::engines::zk
