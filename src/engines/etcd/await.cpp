// Waiting: for the own turn, and for a change; and renewals.
#include "engines/etcd/etcd_engine.hpp"

namespace holdfast::engines::etcd {

// ---- for the own turn

progress etcd_engine::outcome_of(const ticket& place) {
  progress out;
  const auto mine = entries_.find(place.owner);
  const auto under = session_->current();
  if (!mine || !under) return out;
  const auto lock = entries_.lock();
  if (mine->is != own_entry::state::holding || mine->lease != under->id) return out;
  out.is_granted = true;
  out.granted = as_grant(place.name, *mine, *under, mine->since);
  return out;
}

void etcd_engine::start_await(const ticket& place, const call& limits,
                              completion<progress>& done) noexcept {
  const auto mine = entries_.find(place.owner);
  if (!mine) return done.complete(progress{});
  waits_->for_grant(place.owner.sequence, limits,
                    [this, &place, &done](std::optional<its_turn> news) {
                      done.complete(news ? outcome_of(place) : progress{});
                    });
  cluster_->driver().post([this, mine] { watch_manager_->look_for(mine); });
}

// ---- for a change

void etcd_engine::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                              const call& limits, completion<void>& done) noexcept {
  if (limits.stop.stop_requested()) return done.complete({});
  auto alive = std::make_shared<std::atomic<bool>>(true);
  std::string of{name};
  waits_->for_change(watch_manager::topic_of(kind, name), limits,
                     [alive, &done](const std::optional<its_turn>&) {
                       *alive = false;
                       done.complete({});
                     });
  cluster_->driver().post([this, kind, of = std::move(of), seen, alive] {
    watch_manager_->observe(kind, of, seen, alive);
  });
}

}  // namespace holdfast::engines::etcd
