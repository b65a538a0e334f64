// Waiting: for the own turn, and for a change.
#include "engines/common/watch_loop.hpp"
#include "engines/zk/paths.hpp"
#include "engines/zk/zk_engine.hpp"

namespace holdfast::engines::zk {

// ---- for the own turn

progress zk_engine::outcome_of(const ticket& place) {
  progress out;
  const auto own = entries_.find(place.owner);
  if (!own) return out;
  const auto lock = entries_.lock();
  const auto now = ensemble_->current();
  if (own->is != own_entry::state::holding || own->session != now.number) return out;
  out.is_granted = true;
  out.granted = as_grant(place.name, *own, own->since);
  return out;
}

void zk_engine::start_await(const ticket& place, const call& limits,
                            completion<progress>& done) noexcept {
  const auto own = entries_.find(place.owner);
  if (!own || ending_) return done.complete(progress{});
  const auto number = place.owner.sequence;
  std::string blocker;
  watches::on kind{};
  std::int64_t seen = 0;
  {
    const auto lock = entries_.lock();
    blocker = own->blocker;
    kind = own->blocker_is;
    seen = kind == watches::on::children ? own->blocker_seen : 0;
  }
  waits_->for_grant(number, limits,
                    [this, &place, &done, kind, blocker, number](std::optional<its_turn> news) {
                      if (!blocker.empty()) watches_->forget(kind, blocker, number);
                      done.complete(news ? outcome_of(place) : progress{});
                    });
  bool has_place = false;
  {
    const auto lock = entries_.lock();
    has_place = own->has_nodes() || layout_.is_plain;
  }
  // Without one the session has ended meanwhile, which was told before we listened; what was before it is of no matter.
  if (blocker.empty() || !has_place) return waits_->look_again(number);
  watch_own(own);  // first: see there
  watches_->watch(
      kind, blocker, number,
      [this, number, blocker](watches::news what) { on_blocker(number, blocker, what); }, seen);
}

// The last one before ours is gone: then the lock is ours, without another question, provided that our session was
// known to live not long ago.
void zk_engine::on_blocker(std::uint64_t number, const std::string& path, watches::news what) {
  bool is_ours = false;
  mine own;
  if (what == watches::news::gone) {
    const auto lock = entries_.lock();
    const auto at = entries_.all().find(number);
    const auto now = ensemble_->current();
    if (at != entries_.all().end()) own = at->second;
    is_ours = own && own->is == own_entry::state::waiting && own->is_next && own->blocker == path &&
              own->session == now.number &&
              clock_.now() - now.proven < believed_time(now.length) / 2;
    if (is_ours) {
      own->is = own_entry::state::holding;
      own->since = clock_.now();
      own->until = own->since + own->ttl;
      own->blocker.clear();
    }
  }
  if (!is_ours) return waits_->look_again(number);
  note_new_grant(own);
  waits_->granted(number, its_turn{});
}

// ---- for a change

// Of the holders of a lock, or of a counter.
class zk_engine::observation final : public watch_loop, private ensemble::handler {
 public:
  observation(zk_engine& in, watch_kind kind, std::string_view name, std::uint64_t seen,
              const call& limits, completion<void>& done)
      : watch_loop(in.clock_, limits, done),
        in_(in),
        kind_(kind),
        name_(name),
        seen_(seen),
        key_(in.last_observation_.fetch_add(1, std::memory_order_relaxed)) {
    if (kind == watch_kind::counter) {
      paths_.push_back({watches::on::existence, counter_path(in.how_.root, name)});
    } else if (in.layout_.is_plain) {
      paths_.push_back({watches::on::existence, flat_path_of(in.how_.root, name)});
    } else {
      const auto folder = in.folder_of(name);
      paths_.push_back({watches::on::existence, folder});
      paths_.push_back({watches::on::children, folder});
      if (in.layout_.has_permits)
        paths_.push_back({watches::on::children, folder + "/" + std::string{permits_segment}});
    }
  }

 private:
  // One key for all: whichever is told first ends the waiting.
  void listen(const call& until) override {
    const auto number = key_;
    in_.waits_->for_grant(number, until, [this](const std::optional<its_turn>&) {
      for (const auto& [on, path] : paths_) in_.watches_->forget(on, path, key_);
      heard();
    });
    for (const auto& [on, path] : paths_) {
      // A folder that is not there has no children; its own coming is watched.
      const bool only_if_there = on == watches::on::children;
      in_.watches_->watch(
          on, path, key_,
          [this_waits = in_.waits_.get(), number, only_if_there](watches::news what) {
            if (only_if_there && what == watches::news::gone) return;
            this_waits->look_again(number);
          });
    }
  }
  void look(const call& until) override {
    limits_ = until;
    ask_ = batch{};
    if (kind_ == watch_kind::counter) {
      ask_.get(paths_.front().second).get(kept_path(in_.how_.root, name_));
    } else {
      in_.add_view_look(ask_, name_);
    }
    in_.ensemble_->post(ask_, limits_, *this);
  }
  void on_answers(result<answers> what) noexcept override {
    if (!what) return saw(as_reading(std::move(what).error()));
    const auto version = in_.version_in(kind_, name_, *what);
    if (!version) return saw(version.error());
    sight now{*version != seen_};
    if (kind_ == watch_kind::counter && *version != 0) {
      const auto left = in_.counter_lasts(*what);
      if (left != no_expiry) now.again = clock_.now() + left;
    }
    saw(now);
  }
  void wake() override { in_.waits_->look_again(key_); }
  bool is_ending() const override { return in_.ending_; }
  void wake_at(steady_time when) override {
    in_.ensemble_->driver().at(when,
                               [waits = in_.waits_.get(), key = key_] { waits->look_again(key); });
  }

  zk_engine& in_;
  const watch_kind kind_;
  const std::string name_;
  const std::uint64_t seen_;
  const std::uint64_t key_;
  std::vector<std::pair<watches::on, std::string>> paths_;
  batch ask_;
  call limits_;
};

void zk_engine::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                            const call& limits, completion<void>& done) noexcept {
  (new observation{*this, kind, name, seen, limits, done})->begin();
}

}  // namespace holdfast::engines::zk
