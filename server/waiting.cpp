#include "waiting.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace holdfast::server {

waiting_call::waiting_call(visit of) {
  ++here_;
  const auto gone = of.to->gone();
  clients_.emplace_back(std::move(of));
  clients_.back().on_gone.emplace(gone, [this] { one_has_gone(); });
}

void waiting_call::attach(visit more, limits::place its_place) {
  const auto gone = more.to->gone();
  if (gone.stop_requested()) return;
  ++here_;
  clients_.emplace_back(std::move(more), std::move(its_place));
  const auto at = std::prev(clients_.end());
  at->on_gone.emplace(gone, [this, at] { forget(at); });
}

void waiting_call::one_has_gone() {
  if (--here_ == 0) stop_.request_stop();
}

// The callback that calls it goes with it, and does nothing more.
void waiting_call::forget(std::list<client_of_it>::iterator gone) {
  clients_.erase(gone);
  one_has_gone();
}

void waiting_call::cancel(problem why) {
  if (!cancelled_) cancelled_ = std::move(why);
  stop_.request_stop();
}

void waiting_call::answer(const response& with) const {
  for_each([&](const visit& each) { each.answer(with); });
}

void waiting_call::refuse(const problem& why) const {
  for_each([&](const visit& each) { each.refuse(why); });
}

void waiting_room::enter(const call_ptr& call) {
  all_.push_back(call);
  places_[call.get()] = std::prev(all_.end());
  if (!call->request.empty()) by_request_[call->request] = call;
}

void waiting_room::leave(const call_ptr& call) {
  const auto it = places_.find(call.get());
  if (it == places_.end()) return;
  all_.erase(it->second);
  places_.erase(it);
  const auto known = by_request_.find(call->request);
  if (known != by_request_.end() && known->second == call) by_request_.erase(known);
}

call_ptr waiting_room::find(const std::string& request) const {
  const auto it = by_request_.find(request);
  return it == by_request_.end() ? nullptr : it->second;
}

void waiting_room::stop_all() {
  const auto all = all_;
  for (const auto& each : all) each->cancel(stopping());
}

void waiting_room::add_to(std::vector<lock_info>& locks,
                          const std::array<std::uint64_t, 2>& own) const {
  std::map<std::string_view, std::vector<const waiting_call*>> by_name;
  for (const auto& each : all_)
    if (each->is_queued && each->shown.mode == lock_mode::exclusive)
      by_name[each->name].push_back(each.get());
  const auto now = std::chrono::steady_clock::now();
  for (auto& lock : locks) {
    const auto it = by_name.find(lock.name);
    if (it == by_name.end()) continue;
    auto& waiting = it->second;
    // The store has the one that asks it, with its label and its priority. Of several alike that is the one that came
    // first: a later one may have a higher priority, and stand before all others here, but not before that one.
    for (const auto& each : lock.waiters) {
      if (each.owner.client != own || each.mode != lock_mode::exclusive) continue;
      const auto asks = std::ranges::find_if(waiting, [&](const waiting_call* call) {
        return call->shown.label == each.label && call->shown.priority == each.priority;
      });
      if (asks != waiting.end()) waiting.erase(asks);
    }
    std::ranges::stable_sort(waiting, std::ranges::greater{},
                             [](const waiting_call* call) { return call->shown.priority; });
    for (const auto* call : waiting) {
      auto shown = call->shown;
      shown.age = now - call->came();
      lock.waiters.push_back(std::move(shown));
    }
  }
}

}  // namespace holdfast::server
