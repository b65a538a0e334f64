#include "engines/etcd/lookout.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto mirror_kept = 2s;
constexpr auto trusting = 1s;  // this long a sleeper relies on the one before it
constexpr auto news_take = 50ms;

void add_once(std::multimap<std::string, book::ref>& to, const book::ref& waiter) {
  const auto [first, last] = to.equal_range(waiter->name);
  if (std::none_of(first, last, [&](const auto& one) { return one.second == waiter; }))
    to.emplace(waiter->name, waiter);
}

// REQUIRES: the book's guard is held.
void hold(entry& waiter, fencing_token token, steady_time now) {
  waiter.is = entry::state::holding;
  waiter.since = now;
  waiter.until = now + waiter.ttl;  // until it is told, and renews
  waiter.token = token;
}

}  // namespace

// The key before that of a sleeper. When it has gone, the sleeper asks where it stands.
class lookout::one_before final : private watcher, public std::enable_shared_from_this<one_before> {
 public:
  one_before(lookout& in, stored before, std::uint64_t number)
      : in_(in), before_(std::move(before)), number_(number) {
    id_ = in.watches_.add(before_.key, *this);
  }
  ~one_before() { in_.watches_.remove(id_); }
  const stored& before() const noexcept { return before_; }
  // The sleeper lies down again, and has seen this key when it last asked: too early, if it has gone by now.
  void check() {
    if (gone_) in_.room_.look_again(number_);
  }

 private:
  class looking;
  void on_watching(std::int64_t) noexcept override;
  void on_events(const rpc::WatchResponse& what) noexcept override {
    if (what.events(what.events_size() - 1).type() == rpc::Event::DELETE) is_gone();
  }
  void looked(const rpc::RangeResponse& now) {
    const bool there = now.kvs_size() > 0 && now.kvs(0).create_revision() == before_.created;
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

  lookout& in_;
  const stored before_;
  const std::uint64_t number_;
  watches::id id_ = 0;
  bool gone_ = false;
};

// It may have gone before the watch stood.
class lookout::one_before::looking final : public cluster::handler {
 public:
  explicit looking(std::weak_ptr<one_before> to, const std::string& key) : to_(std::move(to)) {
    auto ask = range_of(key);
    ask.set_keys_only(true);
    what_ = {method::range, bytes_of(ask)};
    limits_.deadline = std::chrono::steady_clock::now() + 3s;
  }
  void go(cluster& over) noexcept { over.post(what_, limits_, *this); }

 private:
  void on_answer(answer said) noexcept override {
    rpc::RangeResponse in;
    const bool known = said.got && said.got->ok() && in.ParseFromString(said.got->body);
    const auto to = to_.lock();
    if (to && known && !to->in_.ending_) to->looked(in);
    delete this;
  }
  const std::weak_ptr<one_before> to_;
  question what_;
  call limits_;
};

void lookout::one_before::on_watching(std::int64_t) noexcept {
  (new looking{weak_from_this(), before_.key})->go(in_.cluster_);
}

// ---- waiting

void lookout::look_for(const book::ref& waiter) {
  if (ending_) return;
  attend();
  bool may_sleep = false, has_key = false;
  {
    const auto lock = book_.lock();
    has_key = waiter->is == entry::state::waiting && !waiter->key.empty();
    may_sleep = waiter->may_sleep;
  }
  if (!has_key) return room_.look_again(waiter->owner.sequence);
  if (may_sleep) return sleep(waiter);
  add_once(waiters_, waiter);
  const auto seen = mirror_of(watch_kind::lock, waiter->name);
  if (seen->is_true()) serve(*waiter, seen->as_line(), seen->revision());
}

// ---- sleeping

void lookout::sleep(const book::ref& waiter) {
  std::int64_t lease = 0;
  stored before;
  {
    const auto lock = book_.lock();
    lease = waiter->lease;
    before = waiter->before;
  }
  add_once(sleepers_, waiter);
  const auto own = own_line_of(waiter->name, lease);
  if (const auto at = before_.find(waiter->owner.sequence); at != before_.end()) {
    if (at->second->before() == before) {
      at->second->check();
    } else {
      before_.erase(at);
    }
  }
  if (own->is_true()) rouse(*waiter, own->as_line(), own->revision());
}

std::shared_ptr<mirror> lookout::own_line_of(const std::string& name, std::int64_t lease) {
  auto& slot = own_lines_[name];
  if (slot.copy && slot.lease != lease) slot.copy->end();
  if (!slot.copy || slot.lease != lease) {
    slot.lease = lease;
    slot.copy = std::make_shared<mirror>(
        cluster_, watches_, keys_of(root_, name, lease), [this, name](mirror& now) {
          if (ending_) return;
          const auto own = now.as_line();
          for_each_waiting(sleepers_, name, [&](entry& one) { rouse(one, own, now.revision()); });
        });
    slot.copy->begin();
  }
  slot.copy->used_at = clock_.now();
  return slot.copy;
}

// `own`: nothing but keys of this client, so nothing follows from their order.
void lookout::rouse(entry& sleeper, const line& own, std::int64_t revision) {
  bool granted = false;
  {
    const auto lock = book_.lock();
    if (sleeper.is != entry::state::waiting || revision < sleeper.created) return;
    const auto* key = own.find(sleeper.key);
    if (key != nullptr && key->created != sleeper.created) key = nullptr;
    if (key != nullptr && !key->entered && key->modified <= sleeper.looked) return;
    granted = key != nullptr && key->entered;
    if (granted) {
      hold(sleeper, key->token, clock_.now());
      sleeper.granted_at = key->modified;
      sleeper.heirs = key->heirs;
      sleeper.more_heirs = true;
    }
  }
  tell(sleeper, granted);
}

// Those who do not wait any more are taken out.
template <class Work>
void lookout::for_each_waiting(by_name& of, const std::string& name, Work work) {
  auto [at, end] = of.equal_range(name);
  while (at != end) {
    const auto waiter = at->second;
    const bool waits = [&] {
      const auto lock = book_.lock();
      return waiter->is == entry::state::waiting;
    }();
    at = waits ? std::next(at) : of.erase(at);
    if (waits) work(*waiter);
  }
}

std::string lookout::topic_of(watch_kind kind, std::string_view name) {
  return std::string{kind == watch_kind::lock ? "l" : "c"}.append(name);
}

std::shared_ptr<mirror> lookout::mirror_of(watch_kind kind, const std::string& name) {
  auto& slot = mirrors_[topic_of(kind, name)];
  if (!slot) {
    auto range =
        kind == watch_kind::lock ? keys_of(root_, name) : key_range{counter_key(root_, name), {}};
    slot = std::make_shared<mirror>(cluster_, watches_, std::move(range),
                                    [this, kind, name](mirror& now) { changed(kind, name, now); });
    slot->begin();
  }
  slot->used_at = clock_.now();
  return slot;
}

void lookout::changed(watch_kind kind, const std::string& name, mirror& now) {
  if (ending_) return;
  if (kind == watch_kind::counter)
    return tell_observers(kind, name, static_cast<std::uint64_t>(now.modified()));
  const auto seen = now.as_line();
  serve(name, seen, now.revision());
  note_contention(name, seen.anybody_waits());
  if (observers_.contains(topic_of(kind, name))) tell_observers(kind, name, seen.version());
}

void lookout::serve(const std::string& name, const line& now, std::int64_t revision) {
  for_each_waiting(waiters_, name, [&](entry& one) { serve(one, now, revision); });
}

// The line shows the waiter's own key at a revision, and whose turn it was then. A holder stays one as long as its key
// is there, so this is as good as having asked.
void lookout::serve(entry& waiter, const line& now, std::int64_t revision) {
  bool granted = false;
  {
    const auto lock = book_.lock();
    if (waiter.is != entry::state::waiting || revision < waiter.created) return;
    const auto* own = waiter.key.empty() ? nullptr : now.find(waiter.key);
    if (own != nullptr && own->created != waiter.created) own = nullptr;
    if (own != nullptr && own->stands == place::standing::holder && !own->overtaken()) {
      hold(waiter, own->token, clock_.now());
      waiter.granted_at = revision;
      waiter.heirs = own->hands_over() ? now.heirs_of(*own) : std::vector<heir>{};
      waiter.more_heirs = waiter.heirs.size() == line::most_heirs;
      granted = true;
    } else if (own != nullptr) {
      const bool turn = own->stands == place::standing::holder || now.lets_upgrade(*own) ||
                        own->stands == place::standing::idle;
      if (!turn) return;
    }
  }
  tell(waiter, granted);
}

// If it does not hold yet: its key is gone, or there is something left to do.
void lookout::tell(const entry& waiter, bool granted) {
  const auto number = waiter.owner.sequence;
  if (granted) {
    room_.granted(number, {});
  } else {
    room_.look_again(number);
  }
}

// ---- does anybody wait?

bool lookout::is_contended(std::string_view name) {
  {
    const std::lock_guard lock{guard_};
    const auto [at, fresh] = contended_.try_emplace(std::string{name}, true);
    if (!fresh && !at->second) return false;
  }
  cluster_.driver().post([this, of = std::string{name}] {
    if (ending_) return;
    attend();
    mirror_of(watch_kind::lock, of);
  });
  return true;
}

void lookout::note_contention(const std::string& name, bool contended) {
  const std::lock_guard lock{guard_};
  const auto at = contended_.find(name);
  if (at != contended_.end()) at->second = contended;
}

// ---- watch verbs

void lookout::observe(watch_kind kind, const std::string& name, std::uint64_t seen,
                      sign_of_life alive) {
  if (ending_) return;
  attend();
  const auto topic = topic_of(kind, name);
  observers_.emplace(topic, observer{seen, std::move(alive)});
  const auto now = mirror_of(kind, name);
  if (!now->is_true()) return;
  tell_observers(kind, name,
                 kind == watch_kind::lock ? now->as_line().version()
                                          : static_cast<std::uint64_t>(now->modified()));
}

void lookout::tell_observers(watch_kind kind, const std::string& name, std::uint64_t version) {
  const auto topic = topic_of(kind, name);
  const auto [first, last] = observers_.equal_range(topic);
  bool any = false;
  for (auto at = first; at != last;) {
    const bool over = !*at->second.alive || at->second.seen != version;
    any = any || at->second.seen != version;
    at = over ? observers_.erase(at) : std::next(at);
  }
  if (any) room_.changed(topic);  // the others look again, too
}

// ---- from time to time

void lookout::tend_mirrors() {
  const auto now = clock_.now();
  std::erase_if(observers_, [](const auto& one) { return !*one.second.alive; });
  {
    const auto lock = book_.lock();
    const auto waits = [](const auto& one) { return one->is == entry::state::waiting; };
    std::erase_if(waiters_, [&](const auto& one) { return !waits(one.second); });
    std::erase_if(sleepers_, [&](const auto& one) { return !waits(one.second); });
    std::erase_if(before_, [&](const auto& one) {
      const auto at = book_.all().find(one.first);
      return at == book_.all().end() || !waits(at->second);
    });
  }
  for (auto at = mirrors_.begin(); at != mirrors_.end();) {
    const auto& topic = at->first;
    const bool lock = topic.front() == 'l';
    if (observers_.contains(topic) || (lock && waiters_.contains(topic.substr(1))))
      at->second->used_at = now;
    if (now - at->second->used_at < mirror_kept) {
      ++at;
      continue;
    }
    at->second->end();
    if (lock) {
      const std::lock_guard held{guard_};
      contended_.erase(topic.substr(1));
    }
    at = mirrors_.erase(at);
  }
}

void lookout::tend_sleepers() {
  const auto now = clock_.now();
  for (const auto& [name, one] : sleepers_) {
    const auto number = one->owner.sequence;
    stored before;
    {
      const auto lock = book_.lock();
      if (one->is != entry::state::waiting || now - one->since < trusting) continue;
      before = one->before;
    }
    auto& slot = before_[number];
    if (!slot || slot->before() != before)
      slot = std::make_shared<one_before>(*this, before, number);
  }
  std::erase_if(own_lines_, [&](auto& one) {
    if (sleepers_.contains(one.first)) one.second.copy->used_at = now;
    if (now - one.second.copy->used_at < mirror_kept) return false;
    one.second.copy->end();
    return true;
  });
}

}  // namespace holdfast::engines::etcd
