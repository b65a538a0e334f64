// The passive waiters' part of the watch manager: waiters to which the entry before them will hand over. They watch
// nothing but their own keys, and after a while the key before their own, whose client may have died.
#include "engines/etcd/watch_manager.hpp"

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto kept = 2s;      // the copy of own keys, after its last use
constexpr auto trusting = 1s;  // this long a passive waiter relies on the entry before it
constexpr auto news_take = 50ms;

}  // namespace

// Watches the key before that of a passive waiter. When it has gone, the waiter asks where it stands.
class watch_manager::predecessor_watch final
    : private watcher,
      public std::enable_shared_from_this<predecessor_watch> {
 public:
  predecessor_watch(watch_manager& in, stored key, std::uint64_t number)
      : in_(in), key_(std::move(key)), number_(number) {
    id_ = in.watches_.add(key_.key, *this);
  }
  ~predecessor_watch() { in_.watches_.remove(id_); }
  const stored& key() const noexcept { return key_; }
  // The waiter is passive again, and has seen this key when it last asked: too early, if it has gone by now.
  void check() {
    if (gone_) in_.waits_.look_again(number_);
  }

 private:
  void on_watching(std::int64_t) noexcept override;
  void on_events(const rpc::WatchResponse& what) noexcept override {
    for (const auto& event : what.events())  // it may have been put anew since
      if (event.type() == rpc::Event::DELETE) return is_gone();
  }
  void looked(const answer& said) {
    if (in_.ending_) return;
    rpc::RangeResponse now;
    if (!said.got || !said.got->ok() || !now.ParseFromString(said.got->body))
      return in_.waits_.look_again(number_);
    const bool there = now.kvs_size() > 0 && now.kvs(0).create_revision() == key_.created;
    if (!there) is_gone();
  }
  // As a rule it has handed over, and the news of that is on its way.
  void is_gone() {
    gone_ = true;
    in_.cluster_.driver().at(std::chrono::steady_clock::now() + news_take,
                             [self = weak_from_this()] {
                               if (const auto still = self.lock()) still->check();
                             });
  }

  watch_manager& in_;
  const stored key_;
  const std::uint64_t number_;
  watches::id id_ = 0;
  bool gone_ = false;
};

// It may have gone before the watch stood.
void watch_manager::predecessor_watch::on_watching(std::int64_t) noexcept {
  auto ask = range_of(key_.key);
  ask.set_keys_only(true);
  in_.cluster_.ask_in_background({method::range, bytes_of(ask)}, cluster::answered_within,
                                 [self = weak_from_this()](const answer& said) {
                                   if (const auto still = self.lock()) still->looked(said);
                                 });
}

void watch_manager::become_passive(const own_entries::ref& waiter) {
  std::int64_t lease = 0;
  stored before;
  {
    const auto lock = entries_.lock();
    lease = waiter->lease;
    before = waiter->before;
  }
  take_out(waiters_, waiter);
  add(passive_waiters_, waiter);
  const auto own = own_queue_of(waiter->name, lease);
  if (const auto at = predecessors_.find(waiter->owner.sequence); at != predecessors_.end()) {
    if (at->second->key() == before) {
      at->second->check();
    } else {
      predecessors_.erase(at);
    }
  }
  if (own->is_true()) serve_passive(*waiter, own->as_queue(), own->revision());
}

void watch_manager::become_active(const own_entries::ref& passive_waiter) {
  take_out(passive_waiters_, passive_waiter);
  predecessors_.erase(passive_waiter->owner.sequence);
}

std::shared_ptr<queue_cache> watch_manager::own_queue_of(const std::string& name,
                                                         std::int64_t lease) {
  auto& slot = own_queues_[name];
  if (slot.copy && slot.lease != lease) slot.copy->end();
  if (!slot.copy || slot.lease != lease) {
    slot.lease = lease;
    slot.copy = std::make_shared<queue_cache>(
        cluster_, watches_, keys_of(root_, name, lease), [this, name](queue_cache& now) {
          if (ending_) return;
          const auto own = now.as_queue();
          for (const auto& waiter : still_waiting(passive_waiters_, name))
            serve_passive(*waiter, own, now.revision());
        });
    slot.copy->begin();
  }
  slot.copy->used_at = clock_.now();
  return slot.copy;
}

// `own`: nothing but keys of this client, so nothing follows from their order.
void watch_manager::serve_passive(own_entry& passive_waiter, const lock_queue& own,
                                  std::int64_t revision) {
  bool granted = false;
  {
    const auto lock = entries_.lock();
    if (passive_waiter.is != own_entry::state::waiting || revision < passive_waiter.created) return;
    const auto* key = own.find(passive_waiter.key);
    if (key != nullptr && key->created != passive_waiter.created) key = nullptr;
    if (key != nullptr && !key->entered && key->modified <= passive_waiter.looked) return;
    granted = key != nullptr && key->entered;
    if (granted) {
      hold(passive_waiter, key->token);
      passive_waiter.granted_at = key->modified;
      passive_waiter.successors = key->successors;
      passive_waiter.more_successors = true;
    }
  }
  tell(passive_waiter, granted);
}

void watch_manager::tend_passive_waiters() {
  const auto now = clock_.now();
  for (const auto& [name, waiter] : passive_waiters_) {
    const auto number = waiter->owner.sequence;
    stored before;
    {
      const auto lock = entries_.lock();
      if (waiter->is != own_entry::state::waiting || now - waiter->since < trusting) continue;
      before = waiter->before;
    }
    auto& slot = predecessors_[number];
    if (!slot || slot->key() != before)
      slot = std::make_shared<predecessor_watch>(*this, before, number);
  }
  std::erase_if(own_queues_, [&](auto& own) {
    if (passive_waiters_.contains(own.first)) own.second.copy->used_at = now;
    if (now - own.second.copy->used_at < kept) return false;
    own.second.copy->end();
    return true;
  });
}

}  // namespace holdfast::engines::etcd
