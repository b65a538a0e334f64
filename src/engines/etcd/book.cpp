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

std::uint64_t book::take_slot(std::string_view name) {
  auto at = slots_.find(name);
  if (at == slots_.end()) at = slots_.emplace(name, std::set<std::uint64_t>{}).first;
  std::uint64_t out = 0;
  for (const auto used : at->second)
    if (used == out) ++out;
  at->second.insert(out);
  return out;
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

void book::drop(const entry& which, bool is_gone) {
  take_off(which);
  const auto at = all_.find(which.owner.sequence);
  if (at == all_.end() || at->second.get() != &which) return;
  if (which.slot && is_gone && !which.in_doubt) {
    const auto used = slots_.find(which.name);
    if (used != slots_.end() && used->second.erase(*which.slot) > 0 && used->second.empty())
      slots_.erase(used);
  }
  all_.erase(at);
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

bool is_in_doubt(const entry& which) {
  for (const auto* one = &which; one != nullptr; one = one->over.get())
    if (one->in_doubt) return true;
  return false;
}

std::vector<stored> keys_in(const std::vector<book::ref>& entries) {
  std::vector<stored> out;
  for (const auto& one : entries)
    for (const auto* at = one.get(); at != nullptr; at = at->over.get())
      if (!at->key.empty()) out.push_back({at->key, at->created});
  return out;
}

void learn_heirs(entry& holder, const line& seen, const place& own) {
  holder.heirs = own.hands_over() ? seen.heirs_of(own) : std::vector<heir>{};
  holder.more_heirs = holder.heirs.size() == line::most_heirs;
}

}  // namespace holdfast::engines::etcd
