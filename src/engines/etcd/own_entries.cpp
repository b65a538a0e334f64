#include "engines/etcd/own_entries.hpp"

namespace holdfast::engines::etcd {

std::uint64_t own_entries::take_slot(std::string_view name) {
  auto at = slots_.find(name);
  if (at == slots_.end()) at = slots_.emplace(name, std::set<std::uint64_t>{}).first;
  std::uint64_t out = 0;
  for (const auto used : at->second)
    if (used == out) ++out;
  at->second.insert(out);
  return out;
}

void own_entries::drop(const own_entry& which, bool is_gone) {
  const auto dropped = engines::own_entries<own_entry>::drop(which);
  if (!dropped || !dropped->slot || !is_gone || dropped->in_doubt) return;
  const auto used = slots_.find(dropped->name);
  if (used != slots_.end() && used->second.erase(*dropped->slot) > 0 && used->second.empty())
    slots_.erase(used);
}

bool may_have_late_requests(const own_entry& which) {
  for (const auto* at = &which; at != nullptr; at = at->over.get())
    if (at->in_doubt) return true;
  return false;
}

std::vector<stored> keys_in(const std::vector<own_entries::ref>& entries) {
  std::vector<stored> out;
  for (const auto& entry : entries)
    for (const auto* at = entry.get(); at != nullptr; at = at->over.get())
      if (!at->key.empty()) out.push_back({at->key, at->created});
  return out;
}

void learn_successors(own_entry& holder, const lock_queue& seen, const queue_entry& own) {
  holder.successors = own.hands_over() ? seen.successors_of(own) : std::vector<successor>{};
  holder.more_successors = holder.successors.size() == lock_queue::most_successors;
}

}  // namespace holdfast::engines::etcd
