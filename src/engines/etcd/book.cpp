#include "engines/etcd/book.hpp"

namespace holdfast::engines::etcd {

book::ref book::find(const owner_id& owner) const {
  const std::lock_guard lock{guard_};
  const auto at = all_.find(owner.sequence);
  return at == all_.end() || at->second->owner != owner ? nullptr : at->second;
}

book::ref book::find_or_make(const request& ask) {
  const std::lock_guard lock{guard_};
  auto& slot = all_[ask.owner.sequence];
  if (slot && slot->is != entry::state::releasing) return slot;
  slot = std::make_shared<entry>();
  slot->name = ask.name;
  slot->owner = ask.owner;
  slot->label = ask.label;
  slot->ttl = ask.ttl;
  slot->mode = ask.mode;
  slot->weight = ask.weight;
  return slot;
}

void book::drop(const entry& which) {
  const std::lock_guard lock{guard_};
  drop_locked(which);
}

void book::take_off(const entry& which) {
  const auto [first, last] = releasing_.equal_range(which.name);
  for (auto i = first; i != last; ++i) {
    if (i->second.get() != &which) continue;
    releasing_.erase(i);
    return;
  }
}

void book::end_release(entry& which, steady_time until) {
  take_off(which);
  which.is = entry::state::holding;
  which.until = until;
}

void book::drop_locked(const entry& which) {
  take_off(which);
  const auto at = all_.find(which.owner.sequence);
  if (at != all_.end() && at->second.get() == &which) all_.erase(at);
}

bool book::begin_release(entry& which) {
  const std::lock_guard lock{guard_};
  if (which.is == entry::state::releasing) return false;
  which.is = entry::state::releasing;
  const auto at = all_.find(which.owner.sequence);
  if (at != all_.end() && at->second.get() == &which) releasing_.emplace(which.name, at->second);
  return true;
}

std::vector<book::ref> book::releasing(std::string_view name) const {
  std::vector<ref> out;
  const std::lock_guard lock{guard_};
  if (releasing_.empty()) return out;
  const auto [first, last] = releasing_.equal_range(name);
  for (auto i = first; i != last; ++i) out.push_back(i->second);
  return out;
}

std::vector<std::string> keys_in(const std::vector<book::ref>& entries) {
  std::vector<std::string> out;
  for (const auto& one : entries)
    for (const auto* at = one.get(); at != nullptr; at = at->over.get())
      if (!at->key.empty()) out.push_back(at->key);
  return out;
}

}  // namespace holdfast::engines::etcd
