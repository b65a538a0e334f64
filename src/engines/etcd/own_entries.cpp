#include "engines/etcd/own_entries.hpp"

namespace holdfast::engines::etcd {

own_entries::ref own_entries::find(const owner_id& owner) const {
  const std::lock_guard lock{guard_};
  const auto at = all_.find(owner.sequence);
  return at == all_.end() || at->second->owner != owner ? nullptr : at->second;
}

own_entries::ref own_entries::find_or_make(const request& ask) {
  const std::lock_guard lock{guard_};
  auto& slot = all_[ask.owner.sequence];
  if (slot && slot->is != own_entry::state::releasing) return slot;
  slot = std::make_shared<own_entry>();
  slot->name = ask.name;
  slot->owner = ask.owner;
  slot->label = ask.label;
  slot->ttl = ask.ttl;
  slot->mode = ask.mode;
  slot->weight = ask.weight;
  return slot;
}

std::uint64_t own_entries::take_slot(std::string_view name) {
  auto at = slots_.find(name);
  if (at == slots_.end()) at = slots_.emplace(name, std::set<std::uint64_t>{}).first;
  std::uint64_t out = 0;
  for (const auto used : at->second)
    if (used == out) ++out;
  at->second.insert(out);
  return out;
}

void own_entries::take_off(const own_entry& which) {
  const auto [first, last] = releasing_.equal_range(which.name);
  for (auto i = first; i != last; ++i) {
    if (i->second.get() != &which) continue;
    releasing_.erase(i);
    return;
  }
}

void own_entries::end_release(own_entry& which, steady_time until) {
  take_off(which);
  which.is = own_entry::state::holding;
  which.until = until;
}

void own_entries::drop(const own_entry& which, bool is_gone) {
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

bool own_entries::begin_release(own_entry& which) {
  const std::lock_guard lock{guard_};
  if (which.is == own_entry::state::releasing) return false;
  which.is = own_entry::state::releasing;
  const auto at = all_.find(which.owner.sequence);
  if (at != all_.end() && at->second.get() == &which) releasing_.emplace(which.name, at->second);
  return true;
}

std::vector<own_entries::ref> own_entries::releasing(std::string_view name) const {
  std::vector<ref> out;
  const std::lock_guard lock{guard_};
  if (releasing_.empty()) return out;
  const auto [first, last] = releasing_.equal_range(name);
  for (auto i = first; i != last; ++i) out.push_back(i->second);
  return out;
}

bool may_have_late_requests(const own_entry& which) {
  for (const auto* one = &which; one != nullptr; one = one->over.get())
    if (one->in_doubt) return true;
  return false;
}

std::vector<stored> keys_in(const std::vector<own_entries::ref>& entries) {
  std::vector<stored> out;
  for (const auto& one : entries)
    for (const auto* at = one.get(); at != nullptr; at = at->over.get())
      if (!at->key.empty()) out.push_back({at->key, at->created});
  return out;
}

void learn_successors(own_entry& holder, const lock_queue& seen, const queue_entry& own) {
  holder.successors = own.hands_over() ? seen.successors_of(own) : std::vector<successor>{};
  holder.more_successors = holder.successors.size() == lock_queue::most_successors;
}

}  // namespace holdfast::engines::etcd
