// Waiting: for the own turn, and for a change.
#include "engines/common/watch_loop.hpp"
#include "engines/consul/consul_engine.hpp"

namespace holdfast::engines::consul {

// ---- for the own turn

void consul_engine::start_await(const ticket& place, const call& limits,
                                completion<progress>& done) noexcept {
  const auto own = entries_.find(place.owner);
  if (!own || ending_) return done.complete(progress{});
  const auto number = place.owner.sequence;
  std::string key;
  watches::seen known;
  bool is_waiting = false;
  {
    const auto lock = entries_.lock();
    is_waiting = own->is == own_entry::state::waiting;
    key = own->watched_key;
    known = {own->watched_index, own->watched_keys};
  }
  // What is given may be gone when it has begun to wait: it may have been told already.
  const auto stop = limits.stop;
  const auto recheck_at = place.recheck_at;
  plan_tick();
  waits_->for_grant(number, limits, [this, &done, key, number](const std::optional<its_turn>&) {
    if (!key.empty()) watches_->forget(key, number);
    done.complete(progress{});
  });
  if (!is_waiting) return waits_->look_again(number);
  // Nothing to watch: Consul keeps the lock for a while, and the caller asks again at recheck_at.
  if (key.empty()) {
    agent_->at(recheck_at, [this, number] { waits_->look_again(number); });
    return;
  }
  watches_->watch(key, number, known, [this, number](const auto&, std::uint64_t) {
    waits_->look_again(number);
    return false;
  });
  if (stop.stop_requested())
    watches_->forget(key, number);  // it may have ended before it was watched
}

// ---- for a change

// Of the holders of a lock, or of a counter.
class consul_engine::observation final : public watch_loop, private agent::handler {
 public:
  observation(consul_engine& in, watch_kind kind, std::string_view name, std::uint64_t seen,
              const call& limits, completion<void>& done)
      : watch_loop(in.clock_, limits, done),
        in_(in),
        kind_(kind),
        keys_(keys_of(in.how_.root, name)),
        key_(kind == watch_kind::counter ? counter_key(in.how_.root, name) : keys_.folder),
        seen_(seen),
        number_(in.last_observation_.fetch_add(1, std::memory_order_relaxed)) {}

 private:
  void listen(const call& until) override {
    in_.plan_tick();
    in_.waits_->for_grant(number_, until, [this](const std::optional<its_turn>&) {
      in_.watches_->forget(key_, number_);
      heard();
    });
    in_.watches_->watch(key_, number_, last_,
                        [waits = in_.waits_.get(), number = number_](const auto&, std::uint64_t) {
                          waits->look_again(number);
                          return false;
                        });
  }
  void look(const call& until) override {
    limits_ = until;
    ask_ = {question::verb::get,
            "/v1/kv/" + escaped_path(key_) +
                (kind_ == watch_kind::counter ? "?consistent" : "?recurse&consistent")};
    in_.agent_->post(ask_, limits_, *this);
  }
  void on_answer(answer what) noexcept override {
    constexpr int found = 200, absent = 404;
    if (!what.got) return saw(as_reading(std::move(what.got).error()));
    if (what.got->status != found && what.got->status != absent)
      return saw(as_reading(status_error(*what.got, {}, in_.how_.url)));
    std::optional<std::vector<kv_pair>> pairs{std::in_place};
    if (what.got->status == found) pairs = read_pairs(what.got->body);
    if (!pairs) return saw(unexpected_answer({}, in_.how_.url));
    std::uint64_t version = 0;
    if (kind_ == watch_kind::lock) {
      version = lock_state{*pairs, keys_}.version();
    } else if (!pairs->empty()) {
      version = pairs->front().modified;
    }
    // The next query begins where this look was.
    last_ = {what.got->index, pairs->size()};
    sight now{version != seen_};
    if (kind_ == watch_kind::counter && !pairs->empty()) {
      const auto left = in_.counter_lasts(pairs->front());
      if (left <= nanoseconds::zero()) now.changed = seen_ != 0;
      if (left > nanoseconds::zero() && left != no_expiry) now.again = clock_.now() + left;
    }
    saw(now);
  }
  void wake() override { in_.waits_->look_again(number_); }
  bool is_ending() const override { return in_.ending_; }
  void wake_at(steady_time when) override {
    in_.agent_->at(when,
                   [waits = in_.waits_.get(), number = number_] { waits->look_again(number); });
  }

  consul_engine& in_;
  const watch_kind kind_;
  const lock_keys keys_;
  const std::string key_;
  const std::uint64_t seen_;
  const std::uint64_t number_;
  watches::seen last_;
  question ask_;
  call limits_;
};

void consul_engine::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                                const call& limits, completion<void>& done) noexcept {
  (new observation{*this, kind, name, seen, limits, done})->begin();
}

}  // namespace holdfast::engines::consul
